"use strict";
// View (a): accuracy against training FLOPs, one mark for each method and budget, with intervals over seeds.

const SHAPES = ["circle", "square", "diamond", "triangle", "cross", "down"];

function startCost() {
  const groups = FACTS.groups;
  if (!groups.length) return;
  document.getElementById("cost").hidden = false;
  const tasks = [...new Set(groups.map((group) => group.task))];
  const names = [...new Set(groups.map((group) => group.series))];
  const shown = { task: tasks[0], moment: "last", flops: "full_flops", log: true, hidden: new Set(), focus: 0 };
  const figure = part("cost", "figure");
  const draw = () => drawCost(figure, groups, names, shown);
  part("cost", "controls").append(...costControls(tasks, names, shown, draw));
  onWidth(figure, draw);
  themed.push(draw);
}

function costControls(tasks, names, shown, draw) {
  const set = (key) => (value) => {
    shown[key] = value;
    draw();
  };
  const moments = [["last", "last weights"], ["best", "best by validation"], ["after cut", "right after the cut"]];
  const counts = [["full_flops", "all that was executed"], ["paper_flops", "as the paper counts"]];
  const methods = names.map((name) =>
    tick(name, true, (on) => {
      shown.hidden[on ? "delete" : "add"](name);
      draw();
    }, seriesColour(names, name)),
  );
  return [
    tasks.length > 1 ? choice("Task", tasks.map((task) => [task, task]), shown.task, set("task")) : null,
    choice("Test accuracy of", moments, shown.moment, set("moment")),
    choice("FLOPs", counts, shown.flops, set("flops")),
    toggle("Log scale", shown.log, set("log")),
    el("fieldset", {}, el("legend", {}, "Methods"), ...methods),
  ].filter(Boolean);
}

const seriesColour = (names, name) =>
  name === "dense" ? "var(--ink)" : OKABE_ITO[names.filter((each) => each !== "dense").indexOf(name) % OKABE_ITO.length];

function drawCost(figure, groups, names, shown) {
  const marks = groups
    .filter((group) => group.task === shown.task && !shown.hidden.has(group.series) && group.test[shown.moment])
    .map((group) => ({ group, x: group[shown.flops][0], y: group.test[shown.moment][0], half: group.test[shown.moment][1] ?? 0 }))
    .filter((mark) => !shown.log || mark.x > 0);
  figure.replaceChildren();
  if (!marks.length) {
    figure.append(el("p", {}, "Nothing to show: no run of this choice has such a number."));
    return;
  }
  const width = figure.clientWidth || 900, height = Math.max(300, Math.min(460, width * 0.55));
  const box = { left: 56, top: 30, right: width - 16, bottom: height - 48 };
  const isAccuracy = marks[0].group.is_accuracy;
  const [low, high] = extent(marks.map((mark) => mark.x), 0.06);
  const x = shown.log
    ? logarithmic(Math.min(...marks.map((m) => m.x)) / 1.15, Math.max(...marks.map((m) => m.x)) * 1.15, box.left, box.right)
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
  marks.forEach((mark, i) => drawMark(picture, x, y, mark, i, marks, names, shown));
  figure.append(picture);
}

/** Lines through the dense network, which everything is compared with. */
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

/** A thin line through the budgets of one method. */
function drawSeries(picture, x, y, marks, names) {
  for (const name of names) {
    const own = marks.filter((mark) => mark.group.series === name).sort((a, b) => a.group.keep - b.group.keep);
    const points = own.map((mark) => `${x.at(mark.x)},${y.at(mark.y)}`).join(" ");
    if (own.length > 1 && own.length <= 30) {
      picture.append(svg("polyline", { points, fill: "none", stroke: seriesColour(names, name), "stroke-opacity": 0.35 }));
    }
  }
}

function drawMark(picture, x, y, mark, i, marks, names, shown) {
  const { group } = mark, at = [x.at(mark.x), y.at(mark.y)], colour = seriesColour(names, group.series);
  if (mark.half) {
    const ends = [y.at(mark.y - mark.half), y.at(mark.y + mark.half)];
    picture.append(svg("line", { x1: at[0], x2: at[0], y1: ends[0], y2: ends[1], stroke: colour, "stroke-width": 1.5 }));
  }
  const text = costText(mark, shown);
  const show = () => {
    part("cost", "readout").textContent = text.replaceAll("\n", " · ");
  };
  const shape = svg("path", {
    d: shapePath(SHAPES[Math.max(0, names.indexOf(group.series)) % SHAPES.length], ...at, 6),
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
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step && event.key !== "Enter") return;
      event.preventDefault(); // the rest of the key stroke would act on whatever has the focus by then
      if (!step) return openRun(group.runs[0]);
      shown.focus = (i + step + marks.length) % marks.length;
      const all = picture.querySelectorAll(".mark");
      all[i].setAttribute("tabindex", -1);
      all[shown.focus].setAttribute("tabindex", 0);
      all[shown.focus].focus();
    },
  });
  picture.append(shape);
}

function costText({ group, x, y, half }, shown) {
  const value = group.is_accuracy ? percent(y, 2) : `loss ${plain(y)}`;
  const spread = half ? ` ± ${group.is_accuracy ? (100 * half).toFixed(2) : plain(half)}` : "";
  const seeds = `${group.runs.length} seed${group.runs.length > 1 ? "s" : ""}`;
  const counted = shown.flops === "paper_flops" ? "as the paper counts" : "all that was executed";
  return `${group.series}\nkeeps ${group.budget}\n${value}${spread} (${seeds})\n${short(x)}FLOPs of training, ${counted}\n${short(group.parameters[0])} parameters`;
}

/** Shapes tell series apart where colours do not. */
function shapePath(shape, x, y, r) {
  const lines = (...points) => `M${points.map(([dx, dy]) => `${x + dx * r},${y + dy * r}`).join("L")}Z`;
  return {
    circle: `M${x - r},${y}a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0Z`,
    square: lines([-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]),
    diamond: lines([0, -1.2], [1.2, 0], [0, 1.2], [-1.2, 0]),
    triangle: lines([0, -1.15], [1.1, 0.85], [-1.1, 0.85]),
    down: lines([0, 1.15], [1.1, -0.85], [-1.1, -0.85]),
    cross: lines([-1.1, -0.4], [-0.4, -0.4], [-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4]),
  }[shape];
}

/** Opens the details of a run and goes there. */
function openRun(number) {
  const details = document.getElementById(`run-${number}`);
  details.open = true;
  details.scrollIntoView({ block: "start" });
  details.querySelector("summary").focus({ preventScroll: true });
}
