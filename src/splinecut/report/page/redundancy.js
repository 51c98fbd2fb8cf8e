"use strict";
// View (d): how far the cuts of a layer lie apart, ordered so that near ones stand together; linked to the partition.

function startRedundancy() {
  if (!FACTS.films.some((film) => film.redundancy.length)) return;
  document.getElementById("redundancy").hidden = false;
  const shown = { layer: null, form: "", isClustered: true, order: [], matrix: null, n: 0 };
  const film = () => FACTS.films[chosenFilm.get()];
  const map = new HeatMap("Distances between cuts", {
    tell: (i, j) => pairText(shown, shown.order[i], shown.order[j]),
    pick: (i) => chosenUnit.set({ layer: shown.layer, unit: shown.order[i] }),
  });
  const list = el("div", { class: "card" });
  part("redundancy", "pair").append(map.element, list);

  async function openLayer(layer) {
    shown.layer = layer;
    const table = await distancesOf(film(), layer);
    if (!table) return;
    shown.form = table.forms.includes(shown.form) ? shown.form : table.forms[0];
    Object.assign(shown, { n: table.n, matrix: table[shown.form], clusters: Array.from(table.order), forms: table.forms });
    controls();
    draw();
  }
  function controls() {
    const layers = film().redundancy.map(({ layer }) => [layer, layerName(film(), layer)]);
    part("redundancy", "controls").replaceChildren(
      choice("Layer", layers, shown.layer, (layer) => openLayer(Number(layer))),
      choice("Distance", shown.forms.map((form) => [form, form === "paper" ? "N_ρ as printed in the paper" : `N_ρ, ${form}`]), shown.form, (form) => {
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
    if (!shown.matrix) return;
    const { n, matrix } = shown;
    shown.order = shown.isClustered ? shown.clusters : shown.clusters.map((_, i) => i);
    const finite = matrix.filter(Number.isFinite);
    map.show(n, (i, j) => matrix[shown.order[i] * n + shown.order[j]], finite.length ? finite.reduce((a, b) => Math.max(a, b), 0) : 1);
    mark();
    fillPairs(list, film(), shown);
  }
  function mark() {
    const { n, order } = shown, unit = chosenUnit.get(), frame = chosenFrame.get();
    const rows = unit && unit.layer === shown.layer ? [order.indexOf(unit.unit)] : [];
    const gone = frame && !frame.origin[shown.layer]?.includes(-1) ? order.map((u, i) => (frame.origin[shown.layer].includes(u) ? -1 : i)).filter((i) => i >= 0) : [];
    map.mark([...gone.map((i) => [i, i, 1, 1, "gone"]), ...rows.flatMap((i) => [[i, 0, 1, n, "row"], [0, i, n, 1, "row"]])]);
    const removed = gone.length ? `${gone.length} of ${n} units are removed in the partition above (red crosses on the diagonal).` : `All ${n} units are there in the partition above.`;
    part("redundancy", "readout").textContent = `${rows.length ? `${unitName(film(), unit)} is chosen. ` : ""}${removed}`;
  }
  async function openFilm() {
    const has = film().redundancy.length > 0;
    document.getElementById("redundancy").hidden = !has;
    shown.matrix = null;
    if (has) await openLayer(film().redundancy[0].layer);
  }
  chosenFilm.listen(openFilm);
  chosenFrame.listen(() => shown.matrix && mark());
  chosenUnit.listen((unit) => {
    if (unit && unit.layer !== shown.layer && film().redundancy.some((each) => each.layer === unit.layer)) openLayer(unit.layer);
    else if (shown.matrix) mark();
  });
  themed.push(draw);
  openFilm();
}

const pairText = ({ matrix, n, form }, a, b) => (a === b ? `unit ${a}` : `units ${a} and ${b}\nN_ρ (${form}) ${plain(matrix[a * n + b])}`);

/** The nearest pairs as text, each a button that shows its cuts. */
function fillPairs(list, film, shown) {
  const { n, matrix, layer } = shown, pairs = [];
  for (let a = 0; a < n; a++) for (let b = a + 1; b < n; b++) pairs.push([a, b, matrix[a * n + b]]);
  pairs.sort((x, y) => x[2] - y[2]);
  list.replaceChildren(
    el("h3", {}, `Nearest pairs of ${layerName(film, layer)}`),
    el("ol", {}, ...pairs.slice(0, 8).map(([a, b, distance]) => el("li", {},
      el("button", { type: "button", class: "link", onclick: () => chosenUnit.set({ layer, unit: a }) }, `unit ${a} and unit ${b}`), plain(distance)))),
  );
}
