"use strict";
// Beside the partition: what lies under the pointer, and the chosen unit with its nearest cuts and its fate.

/** "layer 2 (features.5)"; a bare number, as unnamed modules have, would only confuse. */
const layerName = (film, layer) => `layer ${layer + 1}${/^\d+$/.test(film.layers[layer][0]) ? "" : ` (${film.layers[layer][0]})`}`;
const unitName = (film, { layer, unit }) => `unit ${unit} of ${layerName(film, layer)}`;

/** The distance matrix of a layer and its forms, or null; a promise. */
async function distancesOf(film, layer) {
  const stored = film.redundancy.find((each) => each.layer === layer);
  return stored ? { forms: stored.forms, ...(await unpack(stored.blob)), n: film.layers[layer][1] } : null;
}

/** The units nearest to `unit` in a matrix: [unit, distance] pairs. */
function nearestUnits(matrix, n, unit, count = 5) {
  const row = Array.from({ length: n }, (_, other) => [other, matrix[unit * n + other]]);
  return row.filter(([other]) => other !== unit).sort((a, b) => a[1] - b[1] || a[0] - b[0]).slice(0, count);
}

/** The shares of units kept at which pruning had removed the unit, largest first; [] if it always stayed. */
function goneAt(film, { layer, unit }) {
  return film.frames.filter((frame) => frame.stage === "prune" && !frame.origin[layer].includes(unit)).map((frame) => frame.keep).sort((a, b) => b - a);
}

function fate(film, unit) {
  const cuts = film.frames.filter((frame) => frame.stage === "prune");
  if (!cuts.length) return "No cut network is stored, so nothing was removed.";
  if (cuts.some((frame) => frame.origin[unit.layer].includes(-1))) return "Which units of this layer stayed is not known.";
  const gone = goneAt(film, unit);
  if (!gone.length) return `Pruning kept it at every ratio, down to ${percent(Math.min(...cuts.map((f) => f.keep)), 0)} of the units.`;
  const stayed = cuts.map((frame) => frame.keep).filter((keep) => !gone.includes(keep));
  const first = `Pruning removed it when ${percent(gone[0], 0)} of the units were kept`;
  return stayed.some((keep) => keep < gone[0]) ? `${first}; at ${stayed.filter((keep) => keep < gone[0]).map((k) => percent(k, 0)).join(", ")} it stayed.` : `${first} or fewer.`;
}

/** Fills a card with what is known of the chosen unit. */
async function showUnit(card, film, unit, frame) {
  card.classList.toggle("empty", !unit);
  if (!unit) {
    card.replaceChildren(el("h3", {}, "Chosen unit"), el("p", {}, "Click a cut, press Enter over the picture, or choose below."));
    return;
  }
  const table = await distancesOf(film, unit.layer);
  const stays = frame && frame.origin[unit.layer].includes(unit.unit);
  const badge = el("span", { class: stays ? "badge" : "badge gone" }, stays ? "here" : "removed here");
  const parts = [el("h3", {}, `${unitName(film, unit)} `, badge), el("p", {}, fate(film, unit))];
  if (!table) parts.push(el("p", {}, "Distances between the cuts of this layer are not stored."));
  else {
    const form = table.forms[0];
    parts.push(el("p", {}, `Nearest cuts, by N_ρ (${form}):`), el("ol", {}, ...nearestUnits(table[form], table.n, unit.unit).map(([other, distance]) =>
      el("li", {}, el("button", { type: "button", class: "link", onclick: () => chosenUnit.set({ layer: unit.layer, unit: other }) }, `unit ${other}`), plain(distance)))));
  }
  card.replaceChildren(...parts, el("button", { type: "button", onclick: () => chosenUnit.set(null) }, "Clear"));
}

/** Fills a card with the region under the pointer: number, class, affine map, and the nearest cut. */
function showRegion(card, film, pane, place) {
  const { mesh } = pane;
  const region = place && mesh ? mesh.locate(...place) : -1;
  card.classList.toggle("empty", region < 0);
  if (region < 0) {
    card.replaceChildren(el("h3", {}, "Region"), el("p", {}, "Point at the picture to read the affine map that the network is there."));
    return;
  }
  const [u, v] = place, maps = mesh.maps(region);
  const name = (output) => (maps.length === 1 ? "output" : film.classes[output] ?? `output ${output}`);
  const rows = maps.map((map, output) => el("tr", {}, el("td", {}, name(output)), ...[...map, map[0] * u + map[1] * v + map[2]].map((x) => el("td", {}, plain(x)))));
  const edge = mesh.nearestEdge(u, v, Infinity);
  card.replaceChildren(
    el("h3", {}, `Region ${region} of ${mesh.n}`),
    el("p", {}, `(u, v) = (${plain(u)}, ${plain(v)}), ${mesh.offsets[region + 1] - mesh.offsets[region]} corners; class ${film.classes[mesh.classAt(region, u, v)] ?? mesh.classAt(region, u, v)}`),
    el("table", {}, el("tr", {}, ...["", "a", "b", "c", "a u + b v + c"].map((text) => el("th", { scope: "col" }, text))), ...rows),
    el("p", {}, edge < 0 ? "" : `Nearest cut: ${unitName(film, mesh.owner(edge))}`),
  );
}
