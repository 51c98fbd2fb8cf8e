// @ts-check
// The data inside the page: a header in JSON, and arrays deflated in base64, inflated when they are first needed.

import { byId } from "./elements.js";

/** @import { PageData } from "./types.d.ts" */

/** @type {PageData} */
export const pageData = JSON.parse(byId("facts").textContent ?? "");

const ARRAY_TYPES = {
  float64: Float64Array, float32: Float32Array, int32: Int32Array, int16: Int16Array, uint16: Uint16Array, uint8: Uint8Array,
};

/** @param {string} text */
function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text); // native, and much faster with megabytes
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** @type {Map<number, Promise<object>>} */
const unpacked = new Map();

/**
 * The arrays of blob `number` by name; a promise, the same one each time, since the text is thrown away once it is inflated.
 * Which arrays a blob has is decided in report/build.py, so that the caller states their type.
 *
 * @template {object} Arrays
 * @param {number} number
 * @returns {Promise<Arrays>}
 */
export function unpack(number) {
  const known = unpacked.get(number) ?? inflate(number);
  unpacked.set(number, known);
  return /** @type {Promise<Arrays>} */ (known);
}

/** @param {number} number */
async function inflate(number) {
  const element = byId(`blob-${number}`);
  const bytes = fromBase64(element.textContent ?? "");
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const buffer = await new Response(stream).arrayBuffer();
  element.remove(); // megabytes of text that nobody needs again
  return Object.fromEntries(pageData.blobs[number].map(([name, type, start, length]) => {
    const array = ARRAY_TYPES[/** @type {keyof typeof ARRAY_TYPES} */ (type)];
    return [name, new array(buffer, start, length)]; // a view, not a copy: entries start at multiples of eight bytes
  }));
}
