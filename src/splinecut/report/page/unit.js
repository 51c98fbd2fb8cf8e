// @ts-check
// Beside the partition: what lies under the pointer, the chosen unit with its nearest cuts and whether pruning removed it.

import { unpack } from "./data.js";
import { choice, el, percent, plain } from "./elements.js";
import { chosenUnit } from "./selection.js";

/** @import { Mesh } from "./mesh.js" */
/** @import { Film, Frame, Place, Unit, UnitDistances } from "./types.d.ts" */

/** "layer 2 (features.5)"; a bare number, as unnamed modules have, would only confuse. @param {Film} film @param {number} layer */
export function layerName(film, layer) {
  const [name] = film.layers[layer];
  return `layer ${layer + 1}${/^\d+$/.test(name) ? "" : ` (${name})`}`;
}

/** @param {Film} film @param {Unit} unit */
export const unitName = (film, { layer, unit }) => `unit ${unit} of ${layerName(film, layer)}`;

/**
 * The distances between the cuts of a layer; null where they are not stored.
 *
 * @param {Film} film @param {number} layer
 * @returns {Promise<UnitDistances | null>}
 */
export async function distancesOf(film, layer) {
  const stored = film.redundancy.find((each) => each.layer === layer);
  if (!stored) return null;
  /** @type {{ order: Int32Array }} */
  const { order, ...matrices } = await unpack(stored.blob);
  return { n: film.layers[layer][1], forms: stored.forms, order, matrices };
}

/**
 * The `count` units nearest to `unit` in an n x n matrix, with their distances.
 *
 * @param {Float32Array} matrix @param {number} n @param {number} unit
 * @returns {[unit: number, distance: number][]}
 */
export function nearestUnits(matrix, n, unit, count = 5) {
  /** @type {[number, number][]} */
  const row = Array.from({ length: n }, (_, other) => [other, matrix[unit * n + other]]);
  return row.filter(([other]) => other !== unit).sort((a, b) => a[1] - b[1] || a[0] - b[0]).slice(0, count);
}

/** In a sentence, at which ratios pruning removed the unit. @param {Film} film @param {Unit} unit */
function pruningText(film, { layer, unit }) {
  const cuts = film.frames.filter((frame) => frame.stage === "prune");
  if (!cuts.length) return "No cut network is stored, so nothing was removed.";
  if (cuts.some((frame) => frame.origin[layer].includes(-1))) return "Which units of this layer stayed is not known.";
  const isGone = (/** @type {Frame} */ frame) => !frame.origin[layer].includes(unit);
  const gone = cuts.filter(isGone).map((frame) => frame.keep).sort((a, b) => b - a);
  const least = Math.min(...cuts.map((frame) => frame.keep));
  if (!gone.length) return `Pruning kept it at every ratio, down to ${percent(least, 0)} of the units.`;
  const stayed = cuts.map((frame) => frame.keep).filter((keep) => !gone.includes(keep) && keep < gone[0]);
  const first = `Pruning removed it when ${percent(gone[0], 0)} of the units were kept`;
  return stayed.length ? `${first}; at ${stayed.map((keep) => percent(keep, 0)).join(", ")} it stayed.` : `${first} or fewer.`;
}

/**
 * Fills a card with what is known of the chosen unit.
 *
 * @param {HTMLElement} card @param {Film} film @param {Unit | null} unit @param {Frame | undefined} frame
 */
export async function showUnit(card, film, unit, frame) {
  card.classList.toggle("empty", !unit);
  if (!unit) {
    card.replaceChildren(el("h3", {}, "Chosen unit"), el("p", {}, "Click a cut, press Enter over the picture, or choose below."));
    return;
  }
  const table = await distancesOf(film, unit.layer);
  const stays = frame && frame.origin[unit.layer].includes(unit.unit);
  const badge = el("span", { class: stays ? "badge" : "badge gone" }, stays ? "here" : "removed here");
  card.replaceChildren(
    el("h3", {}, `${unitName(film, unit)} `, badge),
    el("p", {}, pruningText(film, unit)),
    ...(table ? nearestList(table, unit) : [el("p", {}, "Distances between the cuts of this layer are not stored.")]),
    el("button", { type: "button", onclick: () => chosenUnit.set(null) }, "Clear"),
  );
}

/** @param {UnitDistances} table @param {Unit} unit */
function nearestList({ forms: [form], matrices, n }, { layer, unit }) {
  const items = nearestUnits(matrices[form], n, unit).map(([other, distance]) => {
    const choose = () => chosenUnit.set({ layer, unit: other });
    return el("li", {}, el("button", { type: "button", class: "link", onclick: choose }, `unit ${other}`), plain(distance));
  });
  return [el("p", {}, `Nearest cuts, by N_ρ (${form}):`), el("ol", {}, ...items)];
}

/**
 * Fills a card with the region under the pointer: number, class, affine map, and the nearest cut.
 *
 * @param {HTMLElement} card @param {Film} film @param {Mesh | null} mesh @param {Place | null} place
 */
export function showRegion(card, film, mesh, place) {
  const region = place && mesh ? mesh.locate(...place) : -1;
  card.classList.toggle("empty", region < 0);
  if (!mesh || !place || region < 0) {
    card.replaceChildren(el("h3", {}, "Region"), el("p", {}, "Point at the picture to read the affine map that the network is there."));
    return;
  }
  const [u, v] = place, maps = mesh.maps(region), winner = mesh.classAt(region, u, v), edge = mesh.nearestEdge(u, v, Infinity);
  const nCorners = mesh.offsets[region + 1] - mesh.offsets[region];
  const rows = maps.map(([a, b, c], output) => el("tr", {},
    el("td", {}, maps.length === 1 ? "output" : film.classes[output] ?? `output ${output}`),
    ...[a, b, c, a * u + b * v + c].map((value) => el("td", {}, plain(value)))));
  card.replaceChildren(
    el("h3", {}, `Region ${region} of ${mesh.n}`),
    el("p", {}, `(u, v) = (${plain(u)}, ${plain(v)}), ${nCorners} corners; class ${film.classes[winner] ?? winner}`),
    el("table", {}, el("tr", {}, ...["", "a", "b", "c", "a u + b v + c"].map((text) => el("th", { scope: "col" }, text))), ...rows),
    el("p", {}, edge < 0 ? "" : `Nearest cut: ${unitName(film, mesh.owner(edge))}`),
  );
}

/** Fills a card that chooses a unit without a mouse: by layer and number. @param {HTMLElement} card @param {Film} film */
export function showUnitPicker(card, film) {
  const units = el("span");
  const fill = (/** @type {number} */ layer) => {
    const numbers = Array.from({ length: film.layers[layer]?.[1] ?? 0 }, (_, unit) => String(unit));
    units.replaceChildren(choice("Unit ", [["", "choose"], ...numbers.map((text) => /** @type {const} */ ([text, text]))], "", (unit) => {
      if (unit !== "") chosenUnit.set({ layer, unit: Number(unit) });
    }));
  };
  fill(0);
  const layers = choice("Layer ", film.layers.map((_, i) => [i, layerName(film, i)]), 0, (layer) => fill(Number(layer)));
  card.replaceChildren(el("h3", {}, "Choose a unit"), el("p", {}, layers), el("p", {}, units));
  card.hidden = !film.layers.length;
}
