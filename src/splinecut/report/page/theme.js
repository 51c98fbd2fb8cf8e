// @ts-check
// Colours: read from the style sheet, so that light and dark are decided in one place; safe for any colour vision.

import { byId } from "./elements.js";

/** @import { Colour } from "./types.d.ts" */

export const OKABE_ITO = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"]; // Okabe & Ito 2008
export const CLASSES = ["#56B4E9", "#E69F00", "#CC79A7", "#009E73", "#F0E442", "#D55E00", "#0072B2"]; // the same, paler ones first
const LAYERS = ["#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9"]; // the same without reds: red is the boundary
const CIVIDIS = ["#00204D", "#213D6B", "#555B6C", "#7B7A77", "#A59C74", "#D3C064", "#FFEA46"]; // Nunez et al. 2018

/** @type {(() => void)[]} */
const listeners = [];

/** Calls `redraw` when the theme changes. @param {() => void} redraw */
export const onTheme = (redraw) => void listeners.push(redraw);

export const themeChanged = () => listeners.forEach((redraw) => redraw());

/** The value of a colour variable of the style sheet. @param {string} name */
export const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export const isDark = () => rgb(variable("paper"))[0] < 128;

/** "#rrggbb" -> [r, g, b]. @param {string} hex @returns {Colour} */
export const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** @param {Colour} a @param {Colour} b @param {number} share @returns {Colour} */
export const mix = (a, b, share) => a.map((value, i) => Math.round(value + (b[i] - value) * share));

/** A pixel as ImageData holds it, read as a 32-bit number on a little-endian machine. @param {Colour} colour */
export const pixel = ([r, g, b]) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;

/** @param {Colour} colour */
export const css = (colour) => `rgb(${colour.join(" ")})`;

/** The colour at `share` (0 to 1) of the cividis ramp. @param {number} share */
export function ramp(share) {
  const at = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return mix(rgb(CIVIDIS[low]), rgb(CIVIDIS[low + 1]), at - low);
}

/** One colour for each of `n` layers: fixed ones while they last, then steps of the ramp. @param {number} n */
export function layerColours(n) {
  if (n <= LAYERS.length) return LAYERS.slice(0, n).map(rgb);
  return Array.from({ length: n }, (_, i) => ramp(0.12 + (0.82 * i) / (n - 1)));
}

/** A colour for a hue from 0 to 255, pale on light paper and deep on dark. @param {number} hue @param {boolean} dark */
export function pastel(hue, dark) {
  const wave = (/** @type {number} */ shift) => 0.5 + 0.5 * Math.cos((2 * Math.PI * (hue / 256 + shift)));
  const [low, high] = dark ? [26, 62] : [218, 253];
  return [0, 1 / 3, 2 / 3].map((shift) => Math.round(low + (high - low) * wave(shift)));
}

export function startTheme() {
  const button = byId("theme");
  const order = ["auto", "light", "dark"];
  let theme = "auto";
  button.addEventListener("click", () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    themeChanged();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);
}
