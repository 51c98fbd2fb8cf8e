"use strict";
// View (b): how much of the partition changes from look to look, and where a threshold draws the ticket.

function startBird() {
  const birds = FACTS.birds;
  if (!birds.length) return;
  document.getElementById("bird").hidden = false;
  const shown = { bird: 0, layer: "", threshold: birds[0].threshold };
  const map = new HeatMap("Distances between looks", { tell: (i, j) => birdCell(birds[shown.bird], shown.layer, i, j) });
  const missing = el("p", {});
  const curve = el("div");
  const left = el("div", {}, el("h3", {}, "Every look against every other"), map.element);
  part("bird", "pair").append(left, el("div", {}, el("h3", {}, "Each look against the one before"), curve, missing));
  const slider = el("input", { type: "range", min: 0, max: 0.6, step: 0.005, oninput: () => setThreshold(Number(slider.value)) });
  const number = el("output");
  const layers = el("span");

  function setThreshold(value) {
    shown.threshold = Math.min(Math.max(value, 0), Number(slider.max));
    draw();
  }
  function setBird(number) {
    shown.bird = number;
    shown.layer = "";
    const bird = birds[number];
    const most = Math.max(bird.threshold, ...bird.distances.flat());
    slider.max = Math.min(1, Math.ceil(most * 22) / 20);
    const options = [["", "all, mean"], ...bird.layers.map((name) => [name, name])];
    layers.replaceChildren(choice("Layer", options, "", (name) => {
      shown.layer = name;
      draw();
    }));
    setThreshold(bird.threshold);
  }
  function draw() {
    const bird = birds[shown.bird];
    slider.value = shown.threshold;
    number.textContent = shown.threshold.toFixed(3);
    const matrix = birdMatrix(bird, shown.layer);
    left.hidden = !matrix;
    part("bird", "pair").classList.toggle("alone", !matrix);
    missing.textContent = matrix ? "" : shown.layer
      ? "This run stores its matrix for all layers together, not for each; choose all layers to see it."
      : "This run stores no distance matrix; the curve holds the distances that decide.";
    const drawn = birdDrawn(bird, shown.layer, shown.threshold);
    if (matrix) {
      map.show(matrix.length, (i, j) => matrix[i][j], Math.max(...matrix.flat()));
      map.mark(drawn ? [[drawn - 1, 0, 1, matrix.length, "row"], [0, drawn - 1, matrix.length, 1, "row"]] : []);
    }
    drawCurve(curve, bird, shown, drawn, Number(slider.max), setThreshold);
    part("bird", "readout").textContent = birdVerdict(bird, shown, drawn);
  }

  const runs = birds.map((bird, i) => [i, `${bird.name}, seed ${bird.seed}`]);
  part("bird", "controls").append(
    choice("Run", runs, 0, (value) => setBird(Number(value))), layers,
    el("label", { class: "slider" }, "Threshold", slider, number),
    el("button", { type: "button", onclick: () => setThreshold(birds[shown.bird].threshold) }, "As run"),
  );
  setBird(0);
  onWidth(curve, draw);
  themed.push(draw);
}

const birdMatrix = (bird, layer) => (layer ? bird.matrices?.[layer] : bird.matrix) ?? null;

/** The distance between looks k + 1 and k + 2, for every k. */
function birdSteps(bird, layer) {
  if (layer) return bird.distances[bird.layers.indexOf(layer)];
  return bird.distances[0].map((_, k) => bird.distances.reduce((sum, row) => sum + row[k], 0) / bird.distances.length);
}

/** The look (counted from 1) at which the rule draws the ticket, or 0: all distances it compares are below the threshold. */
function birdDrawn(bird, layer, threshold) {
  const steps = birdSteps(bird, layer), matrix = birdMatrix(bird, layer);
  for (let look = bird.window + 1; look <= steps.length + 1; look++) {
    const compared = bird.rule === "authors" && matrix
      ? Array.from({ length: bird.window }, (_, k) => matrix[look - 2 - k][look - 1])
      : steps.slice(look - 1 - bird.window, look - 1);
    if (compared.every((distance) => distance < threshold)) return look;
  }
  return 0;
}

const lookName = (bird) => (bird.every === "epoch" ? "epoch" : `look (every ${bird.every} steps), number`);

function birdVerdict(bird, shown, drawn) {
  const whose = shown.layer ? `layer ${shown.layer} alone` : "the network";
  const rule = bird.rule === "authors" ? `the newest look against the ${bird.window} before` : `${bird.window} distances in a row`;
  const stored = bird.drawn ? ` As run, with ${bird.threshold}, it was ${bird.drawn}.` : " As run, it was not drawn.";
  const verdict = drawn
    ? `is drawn after ${lookName(bird)} ${drawn}`
    : `is not drawn within the ${birdSteps(bird, "").length + 1} looks stored`;
  return `At threshold ${shown.threshold.toFixed(3)} (${rule} below it) ${whose} ${verdict}.${stored}`;
}

function birdCell(bird, layer, i, j) {
  return `${lookName(bird)} ${i + 1} against ${j + 1}\n${percent(birdMatrix(bird, layer)[i][j], 2)} of the bits differ`;
}

function drawCurve(place, bird, shown, drawn, most, setThreshold) {
  const width = place.clientWidth || 560, height = Math.max(300, Math.min(440, width * 0.62));
  const box = { left: 52, top: 30, right: width - 14, bottom: height - 48 };
  const steps = birdSteps(bird, shown.layer);
  const x = linear(1, steps.length + 1, box.left, box.right), y = linear(0, most, box.bottom, box.top);
  x.ticks = x.ticks.filter(Number.isInteger);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Distance from look to look" });
  axes(picture, box, x, y, { x: bird.every === "epoch" ? "epoch" : "look", y: "share of bits that changed" }, { x: String, y: (v) => percent(v, 0) });
  const line = (values, about) => picture.append(svg("polyline", {
    points: values.map((value, k) => `${x.at(k + 2)},${y.at(Math.min(value, most))}`).join(" "), fill: "none", ...about,
  }));
  const colours = layerColours(bird.layers.length);
  bird.layers.forEach((name, i) => name !== shown.layer && line(bird.distances[i], { stroke: css(colours[i]), "stroke-opacity": 0.7 }));
  line(steps, { stroke: "var(--ink)", "stroke-width": 2.5, "stroke-linejoin": "round" });
  const at = y.at(shown.threshold);
  const drag = (event) => setThreshold(y.back(((event.clientY - place.firstChild.getBoundingClientRect().top) * height) / place.firstChild.getBoundingClientRect().height));
  const grip = svg("circle", { cx: box.right - 8, cy: at, r: 9, class: "grip" });
  grip.addEventListener("pointerdown", (down) => {
    down.preventDefault();
    const stop = () => removeEventListener("pointermove", drag);
    addEventListener("pointermove", drag);
    addEventListener("pointerup", stop, { once: true });
    addEventListener("pointercancel", stop, { once: true });
  });
  picture.append(svg("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "threshold" }), grip);
  if (drawn) {
    picture.append(
      svg("line", { x1: x.at(drawn), x2: x.at(drawn), y1: box.top, y2: box.bottom, class: "reference" }),
      svg("circle", { cx: x.at(drawn), cy: y.at(Math.min(steps[drawn - 2], most)), r: 7, class: "drawn" }),
      svg("text", { x: x.at(drawn) + (drawn > steps.length * 0.7 ? -10 : 10), y: box.top + 12, "text-anchor": drawn > steps.length * 0.7 ? "end" : "start" }, `drawn: ${drawn}`),
    );
  }
  place.replaceChildren(picture);
}
