"use strict";
// Small helpers for the page: elements, numbers as text, the tooltip. Data only ever becomes text nodes.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Keys of `about` that start with "on" are listeners, `class` and the rest attributes. */
function el(tag, about = {}, ...children) {
  return filled(document.createElement(tag), about, children);
}

/** The same inside a picture. */
function svg(tag, about = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), about, children);
}

function filled(element, about, children) {
  for (const [key, value] of Object.entries(about)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Part of a view, by class. */
const part = (view, name) => document.querySelector(`#${view} .${name}`);

/** A labelled choice; `options` are [value, text] pairs. */
function choice(label, options, value, onchange) {
  const select = el("select", { onchange: () => onchange(select.value) });
  select.append(...options.map(([key, text]) => el("option", { value: key }, text)));
  select.value = value;
  return el("label", {}, label, select);
}

/** A labelled tick box; `swatch` is a colour shown beside it. */
function tick(label, checked, onchange, swatch = null) {
  const box = el("input", { type: "checkbox", checked, onchange: () => onchange(box.checked) });
  const mark = swatch === null ? null : el("span", { class: "swatch" });
  if (mark) mark.style.background = swatch;
  return el("label", {}, box, mark, label);
}

/** A button that is on or off. */
function toggle(label, pressed, onchange) {
  const button = el("button", { type: "button", "aria-pressed": String(pressed) }, label);
  button.addEventListener("click", () => {
    const now = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(now));
    onchange(now);
  });
  return button;
}

const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** 1234567 -> "1.23 M". */
function short(number) {
  for (const [size, prefix] of PREFIXES) {
    if (Math.abs(number) >= size) return `${Number((number / size).toPrecision(3))} ${prefix}`;
  }
  return String(Number(number.toPrecision(3)));
}

const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const plain = (number) => (Number.isFinite(number) ? String(Number(number.toPrecision(4))) : "∞");

/** Shows `text` near a place of the window; null hides it. */
function tip(text, x = 0, y = 0) {
  const box = document.getElementById("tip");
  box.hidden = text === null;
  if (text === null) return;
  box.textContent = text;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
  box.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18}px`;
}

/** Calls `draw(width)` whenever the width of `element` changes. */
function onWidth(element, draw) {
  let last = 0;
  new ResizeObserver(() => {
    const width = element.clientWidth;
    if (width && width !== last) draw((last = width));
  }).observe(element);
}
