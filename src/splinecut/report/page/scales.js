// @ts-check
// Axes: a scale maps values to places, with round ticks; the same for linear and logarithmic.

import { svg } from "./elements.js";

/** @import { Box, LinearScale, Scale } from "./types.d.ts" */

/**
 * A linear scale from [low, high] to [start, stop].
 *
 * @param {number} low
 * @param {number} high
 * @param {number} start
 * @param {number} stop
 * @returns {LinearScale}
 */
export function linear(low, high, start, stop) {
  const span = high - low || 1;
  const step = roundStep(span / 6);
  const ticks = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) ticks.push(value);
  return {
    at: (value) => start + ((value - low) / span) * (stop - start),
    back: (place) => low + ((place - start) / (stop - start)) * span,
    ticks,
  };
}

/**
 * A logarithmic one; fewer ticks a decade the more decades are shown.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} start
 * @param {number} stop
 * @returns {Scale}
 */
export function logarithmic(low, high, start, stop) {
  const [a, b] = [Math.log10(low), Math.log10(high)];
  const span = b - a || 1;
  const ticks = [];
  for (let decade = Math.floor(a); decade <= Math.ceil(b); decade++) {
    for (const digit of span > 3 ? [1] : span > 0.8 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8]) {
      const value = digit * 10 ** decade;
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
    }
  }
  return { at: (value) => start + ((Math.log10(value) - a) / span) * (stop - start), ticks };
}

/** The nearest of 1, 2, 5 times a power of ten, from above. @param {number} rough */
function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5, 10].find((digit) => digit * power >= rough * 0.999) ?? 10);
}

/**
 * [low, high] of the values, a little wider; at least `least` apart.
 *
 * @param {number[]} values
 * @returns {[low: number, high: number]}
 */
export function extent(values, margin = 0.06, least = 0) {
  const low = Math.min(...values), high = Math.max(...values);
  const grow = Math.max((high - low) * margin, (least - (high - low)) / 2, 0);
  return [low - grow, high + grow];
}

/**
 * Draws both axes with grid lines, ticks and titles into `picture`.
 *
 * @param {SVGElement} picture
 * @param {Box} box
 * @param {Scale} x
 * @param {Scale} y
 * @param {{ x: string, y: string }} titles
 * @param {Record<"x" | "y", (value: number) => string>} texts how a tick is written
 */
export function axes(picture, box, x, y, titles, texts) {
  const { left, top, right, bottom } = box;
  for (const value of y.ticks) {
    const at = y.at(value);
    picture.append(svg("line", { x1: left, x2: right, y1: at, y2: at, class: "grid" }));
    picture.append(svg("text", { x: left - 8, y: at + 4, "text-anchor": "end", class: "faint" }, texts.y(value)));
  }
  let free = -Infinity; // where the next label may start without touching the last
  for (const value of x.ticks) {
    const at = x.at(value), text = texts.x(value), half = text.length * 3.4;
    picture.append(svg("line", { x1: at, x2: at, y1: bottom, y2: bottom + 4, class: "axis" }));
    if (at - half < free) continue;
    free = at + half + 6;
    picture.append(svg("text", { x: at, y: bottom + 18, "text-anchor": "middle", class: "faint" }, text));
  }
  picture.append(svg("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }));
  picture.append(svg("text", { x: (left + right) / 2, y: bottom + 38, "text-anchor": "middle" }, titles.x));
  picture.append(svg("text", { x: left - 8, y: top - 10, "text-anchor": "start", dx: -34 }, titles.y));
}
