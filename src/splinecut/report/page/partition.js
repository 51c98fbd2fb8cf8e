"use strict";
// View (c): the exact regions over training and pruning, alone or before and after.

const PLAY = 90; // milliseconds a stored frame stays when playing

function startPartition() {
  const films = FACTS.films;
  if (!films.length) return null;
  document.getElementById("partition").hidden = false;
  const viewer = new Viewer(films);
  chosenFilm.listen(() => viewer.openFilm());
  chosenUnit.listen(() => viewer.mark());
  themed.push(() => viewer.panes.forEach((pane) => pane.draw()));
  viewer.openFilm();
  return viewer;
}

class Viewer {
  constructor(films) {
    this.films = films;
    this.look = { tint: films[0].classes.length ? "class" : "region", cuts: true, boundary: true, points: true, hidden: new Set() };
    this.view = new View();
    const told = { hovered: (pane, place) => showRegion(this.region, this.film, pane, place), chosen: (unit) => chosenUnit.set(unit && unit.unit >= 0 ? unit : null) };
    this.panes = [new Pane(this.view, this.look, told), new Pane(this.view, this.look, told)];
    this.isPaired = false;
    this.frame = 0;
    this.region = el("div", { class: "card" });
    this.unit = el("div", { class: "card", role: "status" });
    this.pickers = el("div", { class: "card empty" });
    this.holder = el("div", { class: "panes" });
    const zoom = (sign, label, act) => el("button", { type: "button", "aria-label": label, title: label, onclick: act }, sign);
    this.panes[1].holder.append(el("div", { class: "zoom" },
      zoom("+", "Zoom in", () => this.view.zoom(1.5)), zoom("−", "Zoom out", () => this.view.zoom(1 / 1.5)), zoom("All", "Show all", () => this.panes[1].showAll())));
    part("partition", "stage").append(this.holder, el("div", { class: "side" }, this.unit, this.pickers, this.region));
    this.pair(false);
  }

  get film() {
    return this.films[chosenFilm.get()];
  }

  pair(isPaired) {
    this.isPaired = isPaired;
    for (const element of [this.holder, part("partition", "stage")]) element.classList.toggle("two", isPaired);
    this.holder.replaceChildren(...(isPaired ? this.panes : [this.panes[1]]).map((pane) => pane.element));
    this.view.isWhole = true;
    if (this.train) this.show(this.frame);
  }

  async openFilm() {
    this.stop();
    const { film } = this;
    const stage = (name) => film.frames.map((_, i) => i).filter((i) => film.frames[i].stage === name);
    this.train = stage("train");
    this.prune = [...this.train.slice(-1), ...stage("prune")];
    this.look.hidden.clear();
    this.view.isWhole = true;
    this.points = await unpack(film.points);
    this.panes.forEach((pane) => Object.assign(pane, { points: this.points, mesh: null }));
    this.fillControls();
    this.fillPickers();
    showRegion(this.region, film, this.panes[1], null);
    chosenUnit.set(null);
    await this.show(this.train[this.train.length - 1] ?? 0);
  }

  fillControls() {
    const { film, look } = this, redraw = () => this.panes.forEach((pane) => pane.draw());
    const set = (key) => (value) => {
      look[key] = value;
      redraw();
    };
    this.sliders = [this.slider("Training step", this.train, (i) => `step ${film.frames[i].step}`), this.slider("Units kept", this.prune, (i) => percent(film.frames[i].keep, 0))];
    const colours = layerColours(film.layers.length);
    const layers = film.layers.length > 12 ? [] : film.layers.map((_, i) => tick(layerName(film, i), true, (on) => {
      look.hidden[on ? "delete" : "add"](i);
      redraw();
    }, css(colours[i])));
    const tints = [["class", "class"], ["region", "region"], ["none", "none"]];
    part("partition", "controls").replaceChildren(...[
      this.films.length > 1 ? choice("Network", this.films.map((each, i) => [i, each.name]), chosenFilm.get(), (i) => chosenFilm.set(Number(i))) : null,
      ...this.sliders.map((slider) => slider.element),
      toggle("Before and after", this.isPaired, (on) => this.pair(on)),
      choice("Tint by", tints, look.tint, set("tint")),
      el("fieldset", {}, el("legend", {}, "Show"), tick("cuts", look.cuts, set("cuts")), tick("decision boundary", look.boundary, set("boundary")), film.frames.length && this.points.label.length ? tick("data", look.points, set("points")) : null),
      layers.length ? el("fieldset", {}, el("legend", {}, "Layers"), ...layers) : null,
    ].filter(Boolean));
  }

  /** A slider over some frames, with a button that plays them; hidden when there is nothing to slide. */
  slider(label, frames, text) {
    const input = el("input", { type: "range", min: 0, max: Math.max(0, frames.length - 1), step: 1, value: 0, oninput: () => {
      const frame = frames[Number(input.value)]; // before `stop` puts the slider back to what is shown
      this.stop();
      this.show(frame);
    } });
    const output = el("output");
    const button = el("button", { type: "button", "aria-label": `Play ${label.toLowerCase()}`, onclick: () => (this.playing === frames ? this.stop() : this.play(frames)) }, "▶");
    const element = el("label", { class: "slider" }, label, input, output);
    const whole = el("div", { class: "player" }, button, element);
    whole.hidden = frames.length < 2;
    const sync = (frame) => {
      const at = frames.indexOf(frame);
      if (at >= 0) input.value = at;
      else input.value = frames === this.prune ? 0 : frames.length - 1;
      output.textContent = frames.length ? text(frames[Number(input.value)]) : "";
      input.setAttribute("aria-valuetext", output.textContent);
      button.textContent = this.playing === frames ? "❚❚" : "▶";
    };
    return { element: whole, sync };
  }

  /** Plays the frames from the one shown, or from the first when at the end. */
  async play(frames) {
    this.playing = frames;
    const from = frames.indexOf(this.frame);
    let at = from < 0 || from === frames.length - 1 ? 0 : from;
    while (this.playing === frames && at < frames.length) {
      const begun = performance.now();
      await this.show(frames[at]);
      await painted();
      await new Promise((done) => setTimeout(done, Math.max(0, PLAY - (performance.now() - begun))));
      at++;
    }
    if (this.playing === frames) this.stop();
  }

  stop() {
    this.playing = null;
    this.sliders?.forEach((slider) => slider.sync(this.frame));
  }

  /** Shows a frame on the right; beside it, if asked, the one before training or before pruning. */
  async show(frame) {
    const { film } = this, wanted = (this.wanted = {});
    const before = film.frames[frame].stage === "prune" ? this.prune[0] : this.train[0];
    const [left, right] = await Promise.all([this.isPaired ? meshOf(film, before) : null, meshOf(film, frame)]);
    if (wanted !== this.wanted) return; // a later call has overtaken this one
    this.frame = frame;
    this.panes[1].show(right);
    this.panes[1].caption.textContent = this.caption(frame);
    if (left) {
      this.panes[0].show(left);
      this.panes[0].caption.textContent = `Before: ${this.caption(before)}`;
    }
    this.sliders.forEach((slider) => slider.sync(frame));
    chosenFrame.set(film.frames[frame]);
    this.mark();
  }

  caption(frame) {
    const { film } = this, { stage, step, keep, regions, facts } = film.frames[frame];
    const isAlone = film.frames.length === 1;
    const when = isAlone ? null : stage === "prune" ? `${percent(keep, 0)} of the units kept` : `training step ${step}`;
    const extra = Object.entries(facts).map(([name, value]) => `${name} ${name.includes("accuracy") ? percent(value) : plain(value)}`);
    return [when, `${regions.toLocaleString("en")} regions`, ...extra, film.about.slice, stage === "prune" ? film.about.cuts : null].filter(Boolean).join(" · ");
  }

  /** Choosing a unit without a mouse: by layer and number. */
  fillPickers() {
    const { film } = this, chosen = { layer: 0 };
    const units = el("span");
    const fill = () => {
      const options = [["", "choose"], ...Array.from({ length: film.layers[chosen.layer]?.[1] ?? 0 }, (_, unit) => [unit, String(unit)])];
      units.replaceChildren(choice("Unit ", options, "", (unit) => unit !== "" && chosenUnit.set({ layer: chosen.layer, unit: Number(unit) })));
    };
    fill();
    this.pickers.replaceChildren(el("h3", {}, "Choose a unit"), el("p", {}, choice("Layer ", film.layers.map((_, i) => [i, layerName(film, i)]), 0, (layer) => {
      chosen.layer = Number(layer);
      fill();
    })), el("p", {}, units));
    this.pickers.hidden = !film.layers.length;
  }

  /** Thickens the cut of the chosen unit, and more thinly the cuts nearest to it. */
  async mark() {
    const { film } = this, unit = chosenUnit.get();
    await showUnit(this.unit, film, unit, film.frames[this.frame]);
    const table = unit ? await distancesOf(film, unit.layer) : null;
    const near = table ? nearestUnits(table[table.forms[0]], table.n, unit.unit, 3) : [];
    for (const pane of this.panes) {
      if (!pane.mesh) continue;
      pane.highlights = !unit ? [] : [
        ...near.map(([other]) => ({ edges: pane.mesh.cutOf({ layer: unit.layer, unit: other }), colour: variable("faint"), thick: 1.6 })),
        { edges: pane.mesh.cutOf(unit), colour: variable("ink"), thick: 3 },
      ];
      pane.draw();
    }
  }
}

/** After the next frame has been painted. */
const painted = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
