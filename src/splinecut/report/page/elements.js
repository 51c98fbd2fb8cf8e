// @ts-check
// Elements and controls of the page, numbers as text, the tooltip. Data only ever becomes text nodes, never HTML.

/** @import { Attributes } from "./types.d.ts" */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. Keys of `about` that start with "on" are listeners, all others attributes.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} about
 * @param {(Node | string | null)[]} children
 */
export function el(tag, about = {}, ...children) {
  return filled(document.createElement(tag), about, children);
}

/**
 * The same inside a picture.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} about
 * @param {(Node | string | null)[]} children
 */
export function svg(tag, about = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), about, children);
}

/**
 * @template {Element} Made
 * @param {Made} element
 * @param {Attributes} about
 * @param {(Node | string | null)[]} children
 */
function filled(element, about, children) {
  for (const [key, value] of Object.entries(about)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key.slice(2), /** @type {EventListener} */ (value));
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** The element with this id, which index.html has. @param {string} id */
export const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** Part of a view, by class. @param {string} view @param {string} name */
export const part = (view, name) => /** @type {HTMLElement} */ (document.querySelector(`#${view} .${name}`));

/** @param {HTMLCanvasElement} canvas @param {CanvasRenderingContext2DSettings} [settings] */
export const context2d = (canvas, settings) => /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", settings));

/**
 * A labelled choice; `options` are [value, text] pairs.
 *
 * @param {string} label
 * @param {(readonly [string | number, string])[]} options
 * @param {string | number} value
 * @param {(value: string) => void} onchange
 */
export function choice(label, options, value, onchange) {
  const select = el("select", { onchange: () => onchange(select.value) });
  select.append(...options.map(([key, text]) => el("option", { value: key }, text)));
  select.value = String(value);
  return el("label", {}, label, select);
}

/**
 * A labelled tick box; `swatch` is a colour shown beside it.
 *
 * @param {string} label
 * @param {boolean} checked
 * @param {(isOn: boolean) => void} onchange
 * @param {string | null} swatch
 */
export function tick(label, checked, onchange, swatch = null) {
  const box = el("input", { type: "checkbox", checked, onchange: () => onchange(box.checked) });
  const mark = swatch === null ? null : el("span", { class: "swatch" });
  if (mark && swatch) mark.style.background = swatch;
  return el("label", {}, box, mark, label);
}

/**
 * A button that is on or off.
 *
 * @param {string} label
 * @param {boolean} pressed
 * @param {(isOn: boolean) => void} onchange
 */
export function toggle(label, pressed, onchange) {
  const button = el("button", { type: "button", "aria-pressed": String(pressed) }, label);
  button.addEventListener("click", () => {
    const now = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(now));
    onchange(now);
  });
  return button;
}

/** @type {[number, string][]} */
const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** 1234567 -> "1.23 M". @param {number} number */
export function short(number) {
  for (const [size, prefix] of PREFIXES) {
    if (Math.abs(number) >= size) return `${Number((number / size).toPrecision(3))} ${prefix}`;
  }
  return String(Number(number.toPrecision(3)));
}

/** @param {number} share @param {number} digits */
export const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

/** Four digits; "∞" for what is not finite. @param {number} number */
export const plain = (number) => (Number.isFinite(number) ? String(Number(number.toPrecision(4))) : "∞");

/** Shows `text` near a place of the window; null hides it. @param {string | null} text */
export function tip(text, x = 0, y = 0) {
  const box = byId("tip");
  box.hidden = text === null;
  if (text === null) return;
  box.textContent = text;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
  box.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18}px`;
}

/** Calls `draw` whenever the width of `element` changes. @param {HTMLElement} element @param {() => void} draw */
export function onWidth(element, draw) {
  let last = 0;
  new ResizeObserver(() => {
    const width = element.clientWidth;
    if (!width || width === last) return;
    last = width;
    draw();
  }).observe(element);
}

/** After the next frame has been painted. @returns {Promise<unknown>} */
export const painted = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
