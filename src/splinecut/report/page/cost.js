// @ts-check
// View (a): accuracy against training FLOPs, one mark for each method and budget, with intervals over seeds.

import { pageData } from "./data.js";
import { byId, choice, el, onWidth, part, percent, plain, short, svg, tick, tip, toggle } from "./elements.js";
import { axes, extent, linear, logarithmic } from "./scales.js";
import { shapePath } from "./shapes.js";
import { OKABE_ITO, onTheme } from "./theme.js";

/** @import { Box, GroupRow, Moment, Scale } from "./types.d.ts" */

/**
 * @typedef {object} Shown what the reader chose
 * @property {string} task
 * @property {Moment} moment
 * @property {"full_flops" | "paper_flops"} flops
 * @property {boolean} log
 * @property {Set<string>} hidden series that are left out
 * @property {number} focus the mark that the keyboard is on
 */

/** @typedef {{ group: GroupRow, x: number, y: number, half: number }} Mark */

/** @type {Record<string, number>} */
const STEPS_OF_KEYS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export function startCost() {
  const { groups } = pageData;
  if (!groups.length) return;
  byId("cost").hidden = false;
  const tasks = [...new Set(groups.map((group) => group.task))];
  const names = [...new Set(groups.map((group) => group.series))];
  /** @type {Shown} */
  const shown = { task: tasks[0], moment: "last", flops: "full_flops", log: true, hidden: new Set(), focus: 0 };
  const figure = part("cost", "figure");
  const draw = () => drawCost(figure, groups, names, shown);
  part("cost", "controls").append(...costControls(tasks, names, shown, draw));
  onWidth(figure, draw);
  onTheme(draw);
}

/** @param {string[]} tasks @param {string[]} names @param {Shown} shown @param {() => void} draw */
function costControls(tasks, names, shown, draw) {
  const set = (/** @type {keyof Shown} */ key) => (/** @type {string | boolean} */ value) => {
    Object.assign(shown, { [key]: value });
    draw();
  };
  const methods = names.map((name) =>
    tick(name, true, (isOn) => {
      shown.hidden[isOn ? "delete" : "add"](name);
      draw();
    }, seriesColour(names, name)),
  );
  return [
    ...(tasks.length > 1 ? [choice("Task", tasks.map((task) => [task, task]), shown.task, set("task"))] : []),
    choice("Test accuracy of", [
      ["last", "last weights"], ["best", "best by validation"], ["after cut", "right after the cut"],
    ], shown.moment, set("moment")),
    choice("FLOPs", [["full_flops", "all that was executed"], ["paper_flops", "as the paper counts"]], shown.flops, set("flops")),
    toggle("Log scale", shown.log, set("log")),
    el("fieldset", {}, el("legend", {}, "Methods"), ...methods),
  ];
}

/** @param {string[]} names @param {string} name */
const seriesColour = (names, name) =>
  name === "dense" ? "var(--ink)" : OKABE_ITO[names.filter((each) => each !== "dense").indexOf(name) % OKABE_ITO.length];

/** @param {GroupRow[]} groups @param {Shown} shown @returns {Mark[]} */
function marksOf(groups, shown) {
  const isShown = (/** @type {GroupRow} */ group) => group.task === shown.task && !shown.hidden.has(group.series);
  return groups.filter(isShown).flatMap((group) => {
    const found = group.test[shown.moment], [x] = group[shown.flops];
    return found && (!shown.log || x > 0) ? [{ group, x, y: found[0], half: found[1] ?? 0 }] : [];
  });
}

/** @param {HTMLElement} figure @param {GroupRow[]} groups @param {string[]} names @param {Shown} shown */
function drawCost(figure, groups, names, shown) {
  const marks = marksOf(groups, shown);
  figure.replaceChildren();
  if (!marks.length) {
    figure.append(el("p", {}, "Nothing to show: no run of this choice has such a number."));
    return;
  }
  const width = figure.clientWidth || 900, height = Math.max(300, Math.min(460, width * 0.55));
  const box = { left: 56, top: 30, right: width - 16, bottom: height - 48 };
  const isAccuracy = marks[0].group.is_accuracy;
  const xs = marks.map((mark) => mark.x);
  const [low, high] = extent(xs, 0.06);
  const x = shown.log
    ? logarithmic(Math.min(...xs) / 1.15, Math.max(...xs) * 1.15, box.left, box.right)
    : linear(Math.max(0, low), high, box.left, box.right);
  const y = linear(...extent(marks.flatMap((m) => [m.y - m.half, m.y + m.half]), 0.08, isAccuracy ? 0.004 : 0), box.bottom, box.top);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Accuracy against training FLOPs" });
  const digits = isAccuracy && y.ticks.length > 1 && y.ticks[1] - y.ticks[0] < 0.01 ? 1 : 0;
  axes(picture, box, x, y, { x: "training FLOPs in total", y: isAccuracy ? "test accuracy" : "test loss" }, {
    x: short,
    y: (value) => (isAccuracy ? percent(value, digits) : plain(value)),
  });
  drawReference(picture, box, x, y, marks);
  drawSeries(picture, x, y, marks, names);
  shown.focus = Math.min(shown.focus, marks.length - 1);
  marks.forEach((_, i) => drawMark(picture, x, y, i, marks, names, shown));
  figure.append(picture);
}

/**
 * Lines through the dense network, which everything is compared with.
 *
 * @param {SVGElement} picture @param {Box} box @param {Scale} x @param {Scale} y @param {Mark[]} marks
 */
function drawReference(picture, box, x, y, marks) {
  const dense = marks.find((mark) => mark.group.series === "dense");
  if (!dense) return;
  const at = [x.at(dense.x), y.at(dense.y)];
  picture.append(
    svg("line", { x1: box.left, x2: box.right, y1: at[1], y2: at[1], class: "reference" }),
    svg("line", { x1: at[0], x2: at[0], y1: box.top, y2: box.bottom, class: "reference" }),
    svg("text", { x: box.left + 4, y: at[1] - 5, class: "faint" }, "dense"),
  );
}

/**
 * A thin line through the budgets of one method.
 *
 * @param {SVGElement} picture @param {Scale} x @param {Scale} y @param {Mark[]} marks @param {string[]} names
 */
function drawSeries(picture, x, y, marks, names) {
  for (const name of names) {
    const own = marks.filter((mark) => mark.group.series === name).sort((a, b) => a.group.keep - b.group.keep);
    const points = own.map((mark) => `${x.at(mark.x)},${y.at(mark.y)}`).join(" ");
    if (own.length > 1 && own.length <= 30) {
      picture.append(svg("polyline", { points, fill: "none", stroke: seriesColour(names, name), "stroke-opacity": 0.35 }));
    }
  }
}

/**
 * Mark `i` with its interval. One mark at a time is in the tab order; arrow keys go on from there.
 *
 * @param {SVGElement} picture @param {Scale} x @param {Scale} y @param {number} i
 * @param {Mark[]} marks @param {string[]} names @param {Shown} shown
 */
function drawMark(picture, x, y, i, marks, names, shown) {
  const mark = marks[i], { group } = mark, colour = seriesColour(names, group.series);
  const left = x.at(mark.x), top = y.at(mark.y);
  if (mark.half) {
    const ends = [y.at(mark.y - mark.half), y.at(mark.y + mark.half)];
    picture.append(svg("line", { x1: left, x2: left, y1: ends[0], y2: ends[1], stroke: colour, "stroke-width": 1.5 }));
  }
  const text = costText(mark, shown);
  const show = () => {
    part("cost", "readout").textContent = text.replaceAll("\n", " · ");
  };
  picture.append(svg("path", {
    d: shapePath(Math.max(0, names.indexOf(group.series)), left, top, 6),
    fill: colour, stroke: "var(--halo)", "stroke-width": 1, class: "mark", role: "img", "aria-label": text.replaceAll("\n", ", "),
    tabindex: i === shown.focus ? 0 : -1,
    onpointermove: (event) => {
      tip(text, event.clientX, event.clientY);
      show();
    },
    onpointerleave: () => tip(null),
    onfocus: show,
    onclick: () => openRun(group.runs[0]),
    onkeydown: (event) => {
      const step = STEPS_OF_KEYS[event.key];
      if (!step && event.key !== "Enter") return;
      event.preventDefault(); // the rest of the key stroke would act on whatever has the focus by then
      if (!step) return openRun(group.runs[0]);
      shown.focus = (i + step + marks.length) % marks.length;
      const all = /** @type {NodeListOf<SVGElement>} */ (picture.querySelectorAll(".mark"));
      all[i].setAttribute("tabindex", "-1");
      all[shown.focus].setAttribute("tabindex", "0");
      all[shown.focus].focus();
    },
  }));
}

/** @param {Mark} mark @param {Shown} shown */
function costText({ group, x, y, half }, shown) {
  const value = group.is_accuracy ? percent(y, 2) : `loss ${plain(y)}`;
  const spread = half ? ` ± ${group.is_accuracy ? (100 * half).toFixed(2) : plain(half)}` : "";
  const seeds = `${group.runs.length} seed${group.runs.length > 1 ? "s" : ""}`;
  const counted = shown.flops === "paper_flops" ? "as the paper counts" : "all that was executed";
  return [
    group.series,
    `keeps ${group.budget}`,
    `${value}${spread} (${seeds})`,
    `${short(x)}FLOPs of training, ${counted}`,
    `${short(group.parameters[0])} parameters`,
  ].join("\n");
}

/** Opens the details of a run and goes there. @param {number} number */
function openRun(number) {
  const details = /** @type {HTMLDetailsElement} */ (byId(`run-${number}`));
  details.open = true;
  details.scrollIntoView({ block: "start" });
  details.querySelector("summary")?.focus({ preventScroll: true });
}
