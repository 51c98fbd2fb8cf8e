// @ts-check
// View (d): how far the cuts of a layer lie apart, ordered so that near ones stand together; linked to the partition.

import { pageData } from "./data.js";
import { byId, choice, el, part, plain } from "./elements.js";
import { HeatMap } from "./matrix.js";
import { chosenFilm, chosenFrame, chosenUnit, currentFilm } from "./selection.js";
import { onTheme } from "./theme.js";
import { distancesOf, layerName, unitName } from "./unit.js";

/** @import { CellFrame } from "./matrix.js" */
/** @import { Film, UnitDistances } from "./types.d.ts" */

/**
 * @typedef {object} Shown
 * @property {number} layer
 * @property {string} form
 * @property {boolean} isClustered
 * @property {number[]} order the unit in each row
 * @property {UnitDistances | null} table null until it is unpacked
 */

export function startRedundancy() {
  if (!pageData.films.some((film) => film.redundancy.length)) return;
  byId("redundancy").hidden = false;
  /** @type {Shown} */
  const shown = { layer: -1, form: "", isClustered: true, order: [], table: null };
  const map = new HeatMap("Distances between cuts", {
    tell: (i, j) => pairText(shown, shown.order[i], shown.order[j]),
    pick: (i) => chosenUnit.set({ layer: shown.layer, unit: shown.order[i] }),
  });
  const list = el("div", { class: "card" });
  part("redundancy", "pair").append(map.element, list);

  /** @param {number} layer */
  async function openLayer(layer) {
    shown.layer = layer;
    const table = await distancesOf(currentFilm(), layer);
    if (!table) return;
    shown.form = table.forms.includes(shown.form) ? shown.form : table.forms[0];
    shown.table = table;
    fillControls(table);
    draw();
  }
  /** @param {UnitDistances} table */
  function fillControls({ forms }) {
    const film = currentFilm();
    const formText = (/** @type {string} */ form) => (form === "paper" ? "N_ρ as printed in the paper" : `N_ρ, ${form}`);
    const layers = film.redundancy.map(({ layer }) => /** @type {const} */ ([layer, layerName(film, layer)]));
    part("redundancy", "controls").replaceChildren(
      choice("Layer", layers, shown.layer, (layer) => openLayer(Number(layer))),
      choice("Distance", forms.map((form) => [form, formText(form)]), shown.form, (form) => {
        shown.form = form;
        openLayer(shown.layer);
      }),
      choice("Order", [["clusters", "by clusters"], ["number", "by number"]], shown.isClustered ? "clusters" : "number", (order) => {
        shown.isClustered = order === "clusters";
        draw();
      }),
    );
  }
  function draw() {
    if (!shown.table) return;
    const { n, matrices, order } = shown.table, matrix = matrices[shown.form];
    shown.order = Array.from(order, (unit, i) => (shown.isClustered ? unit : i));
    const finite = matrix.filter(Number.isFinite); // units that cut nothing are infinitely far from all others
    const top = finite.length ? finite.reduce((a, b) => Math.max(a, b), 0) : 1;
    map.show(n, (i, j) => matrix[shown.order[i] * n + shown.order[j]], top);
    mark();
    fillPairs(list, currentFilm(), shown);
  }
  function mark() {
    const { order, layer } = shown, n = order.length, unit = chosenUnit.get(), origin = chosenFrame.get()?.origin[layer];
    const rows = unit && unit.layer === layer ? [order.indexOf(unit.unit)] : [];
    const gone = origin && !origin.includes(-1) ? order.map((each, i) => (origin.includes(each) ? -1 : i)).filter((i) => i >= 0) : [];
    /** @type {CellFrame[]} */
    const frames = gone.map((i) => [i, i, 1, 1, "gone"]);
    for (const i of rows) frames.push([i, 0, 1, n, "row"], [0, i, n, 1, "row"]);
    map.mark(frames);
    const removed = gone.length
      ? `${gone.length} of ${n} units are removed in the partition above (red crosses on the diagonal).`
      : `All ${n} units are there in the partition above.`;
    part("redundancy", "readout").textContent = `${unit && rows.length ? `${unitName(currentFilm(), unit)} is chosen. ` : ""}${removed}`;
  }
  async function openFilm() {
    const { redundancy } = currentFilm();
    byId("redundancy").hidden = !redundancy.length;
    shown.table = null;
    if (redundancy.length) await openLayer(redundancy[0].layer);
  }
  chosenFilm.listen(openFilm);
  chosenFrame.listen(() => shown.table && mark());
  chosenUnit.listen((unit) => {
    const { redundancy } = currentFilm();
    if (unit && unit.layer !== shown.layer && redundancy.some((each) => each.layer === unit.layer)) openLayer(unit.layer);
    else if (shown.table) mark();
  });
  onTheme(draw);
  openFilm();
}

/** @param {Shown} shown @param {number} a @param {number} b */
function pairText({ table, form }, a, b) {
  if (a === b || !table) return `unit ${a}`;
  return `units ${a} and ${b}\nN_ρ (${form}) ${plain(table.matrices[form][a * table.n + b])}`;
}

/** The nearest pairs as text, each a button that shows its cuts. @param {HTMLElement} list @param {Film} film @param {Shown} shown */
function fillPairs(list, film, { table, form, layer }) {
  if (!table) return;
  const { n } = table, matrix = table.matrices[form];
  /** @type {[number, number, number][]} */
  const pairs = [];
  for (let a = 0; a < n; a++) for (let b = a + 1; b < n; b++) pairs.push([a, b, matrix[a * n + b]]);
  pairs.sort((x, y) => x[2] - y[2]);
  const items = pairs.slice(0, 8).map(([a, b, distance]) => {
    const choose = () => chosenUnit.set({ layer, unit: a });
    return el("li", {}, el("button", { type: "button", class: "link", onclick: choose }, `unit ${a} and unit ${b}`), plain(distance));
  });
  list.replaceChildren(el("h3", {}, `Nearest pairs of ${layerName(film, layer)}`), el("ol", {}, ...items));
}
