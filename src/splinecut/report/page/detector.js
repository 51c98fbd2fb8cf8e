// @ts-check
// View (b): how much of the partition changes from look to look, and where a threshold draws the ticket.

import { pageData } from "./data.js";
import { byId, choice, el, onWidth, part, percent, svg } from "./elements.js";
import { HeatMap } from "./matrix.js";
import { axes, linear } from "./scales.js";
import { css, layerColours, onTheme } from "./theme.js";

/** @import { Attributes, Detection } from "./types.d.ts" */

/** @typedef {{ run: number, layer: string, threshold: number }} Shown what the reader chose; layer "" is all of them */

export function startDetector() {
  const detections = pageData.detections;
  if (!detections.length) return;
  byId("bird").hidden = false;
  /** @type {Shown} */
  const shown = { run: 0, layer: "", threshold: detections[0].threshold };
  const map = new HeatMap("Distances between looks", { tell: (i, j) => cellText(detections[shown.run], shown.layer, i, j) });
  const missing = el("p", {});
  const curve = el("div");
  const left = el("div", {}, el("h3", {}, "Every look against every other"), map.element);
  part("bird", "pair").append(left, el("div", {}, el("h3", {}, "Each look against the one before"), curve, missing));
  const slider = el("input", { type: "range", min: 0, max: 0.6, step: 0.005, oninput: () => setThreshold(Number(slider.value)) });
  const number = el("output");
  const layers = el("span");

  /** @param {number} value */
  function setThreshold(value) {
    shown.threshold = Math.min(Math.max(value, 0), Number(slider.max));
    draw();
  }
  /** @param {number} run */
  function setRun(run) {
    shown.run = run;
    shown.layer = "";
    const detection = detections[run];
    const most = Math.max(detection.threshold, ...detection.distances.flat());
    slider.max = String(Math.min(1, Math.ceil(most * 22) / 20));
    /** @type {[string, string][]} */
    const options = [["", "all, mean"], ...detection.layers.map((name) => /** @type {[string, string]} */ ([name, name]))];
    layers.replaceChildren(choice("Layer", options, "", (name) => {
      shown.layer = name;
      draw();
    }));
    setThreshold(detection.threshold);
  }
  function draw() {
    const detection = detections[shown.run];
    slider.value = String(shown.threshold);
    number.textContent = shown.threshold.toFixed(3);
    const matrix = matrixOf(detection, shown.layer);
    left.hidden = !matrix;
    part("bird", "pair").classList.toggle("alone", !matrix);
    missing.textContent = matrix ? "" : shown.layer
      ? "This run stores its matrix for all layers together, not for each; choose all layers to see it."
      : "This run stores no distance matrix; the curve holds the distances that decide.";
    const drawn = drawnAt(detection, shown.layer, shown.threshold);
    if (matrix) {
      map.show(matrix.length, (i, j) => matrix[i][j], Math.max(...matrix.flat()));
      map.mark(drawn ? [[drawn - 1, 0, 1, matrix.length, "row"], [0, drawn - 1, matrix.length, 1, "row"]] : []);
    }
    drawCurve(curve, detection, shown, drawn, Number(slider.max), setThreshold);
    part("bird", "readout").textContent = verdict(detection, shown, drawn);
  }

  part("bird", "controls").append(
    choice("Run", detections.map((each, i) => [i, `${each.name}, seed ${each.seed}`]), 0, (value) => setRun(Number(value))),
    layers,
    el("label", { class: "slider" }, "Threshold", slider, number),
    el("button", { type: "button", onclick: () => setThreshold(detections[shown.run].threshold) }, "As run"),
  );
  setRun(0);
  onWidth(curve, draw);
  onTheme(draw);
}

/** Distances between all looks, null where they are not stored. @param {Detection} detection @param {string} layer */
const matrixOf = (detection, layer) => (layer ? detection.matrices?.[layer] : detection.matrix) ?? null;

/** The distance between looks k + 1 and k + 2, for every k. @param {Detection} detection @param {string} layer */
function stepsOf({ distances, layers }, layer) {
  if (layer) return distances[layers.indexOf(layer)];
  return distances[0].map((_, k) => distances.reduce((sum, row) => sum + row[k], 0) / distances.length);
}

/**
 * The look (counted from 1) at which the rule draws the ticket, or 0: all distances it compares are below the threshold.
 * The authors' rule compares the newest look with each in its window, and needs the matrix; the paper's needs neighbours only.
 *
 * @param {Detection} detection @param {string} layer @param {number} threshold
 */
function drawnAt(detection, layer, threshold) {
  const { window, rule } = detection, steps = stepsOf(detection, layer), matrix = matrixOf(detection, layer);
  for (let look = window + 1; look <= steps.length + 1; look++) {
    const compared = rule === "authors" && matrix
      ? Array.from({ length: window }, (_, k) => matrix[look - 2 - k][look - 1])
      : steps.slice(look - 1 - window, look - 1);
    if (compared.every((distance) => distance < threshold)) return look;
  }
  return 0;
}

/** @param {Detection} detection */
const lookName = ({ every }) => (every === "epoch" ? "epoch" : `look (every ${every} steps), number`);

/** @param {Detection} detection @param {Shown} shown @param {number} drawn */
function verdict(detection, shown, drawn) {
  const { rule, window, threshold } = detection;
  const whose = shown.layer ? `layer ${shown.layer} alone` : "the network";
  const compared = rule === "authors" ? `the newest look against the ${window} before` : `${window} distances in a row`;
  const stored = detection.drawn ? ` As run, with ${threshold}, it was ${detection.drawn}.` : " As run, it was not drawn.";
  const found = drawn
    ? `is drawn after ${lookName(detection)} ${drawn}`
    : `is not drawn within the ${stepsOf(detection, "").length + 1} looks stored`;
  return `At threshold ${shown.threshold.toFixed(3)} (${compared} below it) ${whose} ${found}.${stored}`;
}

/** @param {Detection} detection @param {string} layer @param {number} i @param {number} j */
function cellText(detection, layer, i, j) {
  const distance = matrixOf(detection, layer)?.[i][j] ?? NaN;
  return `${lookName(detection)} ${i + 1} against ${j + 1}\n${percent(distance, 2)} of the bits differ`;
}

/**
 * The curve of distances with the threshold, which can be dragged.
 *
 * @param {HTMLElement} place @param {Detection} detection @param {Shown} shown @param {number} drawn
 * @param {number} most @param {(value: number) => void} setThreshold
 */
function drawCurve(place, detection, shown, drawn, most, setThreshold) {
  const width = place.clientWidth || 560, height = Math.max(300, Math.min(440, width * 0.62));
  const box = { left: 52, top: 30, right: width - 14, bottom: height - 48 };
  const steps = stepsOf(detection, shown.layer);
  const x = linear(1, steps.length + 1, box.left, box.right), y = linear(0, most, box.bottom, box.top);
  x.ticks = x.ticks.filter(Number.isInteger);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Distance from look to look" });
  const titles = { x: detection.every === "epoch" ? "epoch" : "look", y: "share of bits that changed" };
  axes(picture, box, x, y, titles, { x: String, y: (value) => percent(value, 0) });
  const line = (/** @type {number[]} */ values, /** @type {Attributes} */ about) => picture.append(svg("polyline", {
    points: values.map((value, k) => `${x.at(k + 2)},${y.at(Math.min(value, most))}`).join(" "), fill: "none", ...about,
  }));
  const colours = layerColours(detection.layers.length);
  detection.layers.forEach((name, i) => {
    if (name !== shown.layer) line(detection.distances[i], { stroke: css(colours[i]), "stroke-opacity": 0.7 });
  });
  line(steps, { stroke: "var(--ink)", "stroke-width": 2.5, "stroke-linejoin": "round" });
  const at = y.at(shown.threshold);
  const grip = svg("circle", { cx: box.right - 8, cy: at, r: 9, class: "grip" });
  const drag = (/** @type {PointerEvent} */ event) => {
    // Each move draws the curve anew: the picture to measure is the one in the page, not the one that was pressed.
    const { top, height: onPage } = /** @type {Element} */ (place.firstElementChild).getBoundingClientRect();
    setThreshold(y.back(((event.clientY - top) * height) / onPage));
  };
  grip.addEventListener("pointerdown", (down) => {
    down.preventDefault();
    const stop = () => removeEventListener("pointermove", drag);
    addEventListener("pointermove", drag);
    addEventListener("pointerup", stop, { once: true });
    addEventListener("pointercancel", stop, { once: true });
  });
  picture.append(svg("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "threshold" }), grip);
  if (drawn) {
    const isLate = drawn > steps.length * 0.7;
    picture.append(
      svg("line", { x1: x.at(drawn), x2: x.at(drawn), y1: box.top, y2: box.bottom, class: "reference" }),
      svg("circle", { cx: x.at(drawn), cy: y.at(Math.min(steps[drawn - 2], most)), r: 7, class: "drawn" }),
      svg("text", { x: x.at(drawn) + (isLate ? -10 : 10), y: box.top + 12, "text-anchor": isLate ? "end" : "start" }, `drawn: ${drawn}`),
    );
  }
  place.replaceChildren(picture);
}
