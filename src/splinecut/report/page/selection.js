// @ts-check
// What several views show together: values that tell their listeners when they change.

import { pageData } from "./data.js";

/** @import { Frame, Shared, Unit } from "./types.d.ts" */

/**
 * @template Value
 * @param {Value} value
 * @returns {Shared<Value>}
 */
function shared(value) {
  /** @type {((value: Value) => void)[]} */
  const listeners = [];
  return {
    get: () => value,
    set(next) {
      value = next;
      listeners.forEach((listen) => listen(value));
    },
    listen: (listener) => void listeners.push(listener),
  };
}

/** Which network the partition and redundancy views show. */
export const chosenFilm = shared(0);

/** The unit whose cut is highlighted. */
export const chosenUnit = shared(/** @type {Unit | null} */ (null));

/** The frame that the partition view shows. */
export const chosenFrame = shared(/** @type {Frame | null} */ (null));

/** The film that both views show. */
export const currentFilm = () => pageData.films[chosenFilm.get()];
