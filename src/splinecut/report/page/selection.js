"use strict";
// What several views show together: a value with listeners.

/** A value that tells its listeners when it changes. */
function shared(value) {
  const listeners = [];
  return {
    get: () => value,
    set(next) {
      value = next;
      listeners.forEach((listen) => listen(value));
    },
    listen: (listener) => listeners.push(listener),
  };
}

const chosenFilm = shared(0); // which network the partition and redundancy views show
const chosenUnit = shared(null); // {layer, unit}: a unit of the whole network, or null
const chosenFrame = shared(null); // the frame that the partition view shows
