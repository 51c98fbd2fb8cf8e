"use strict";
// The data inside the page: a header in JSON, and arrays deflated in base64, inflated when they are first needed.

const FACTS = JSON.parse(document.getElementById("facts").textContent);

const TYPES = {
  float64: Float64Array, float32: Float32Array, int32: Int32Array, int16: Int16Array, uint16: Uint16Array, uint8: Uint8Array,
};

/** Bytes of a base64 text. */
function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

const unpacked = new Map();

/** The arrays of blob `number` by name; a promise, the same one each time. */
function unpack(number) {
  if (!unpacked.has(number)) unpacked.set(number, inflate(number));
  return unpacked.get(number);
}

async function inflate(number) {
  const element = document.getElementById(`blob-${number}`);
  const stream = new Blob([fromBase64(element.textContent)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const buffer = await new Response(stream).arrayBuffer();
  element.remove(); // the text is not needed again
  return Object.fromEntries(
    FACTS.blobs[number].map(([name, type, start, length]) => [name, new TYPES[type](buffer, start, length)]),
  );
}
