// @ts-check
// View (c): the exact regions over training and pruning, alone or before and after.

import { Camera } from "./camera.js";
import { pageData, unpack } from "./data.js";
import { byId, choice, el, part, percent, plain, tick, toggle } from "./elements.js";
import { FrameSlider } from "./frame_slider.js";
import { meshOf } from "./mesh.js";
import { Pane } from "./pane.js";
import { chosenFilm, chosenFrame, chosenUnit, currentFilm } from "./selection.js";
import { css, layerColours, onTheme, variable } from "./theme.js";
import { distancesOf, layerName, nearestUnits, showRegion, showUnit, showUnitPicker } from "./unit.js";

/** @import { Told } from "./pane.js" */
/** @import { Display, Points } from "./types.d.ts" */

/** The view, null if the page has no partition. */
export function startPartition() {
  if (!pageData.films.length) return null;
  byId("partition").hidden = false;
  const viewer = new Viewer();
  chosenFilm.listen(() => viewer.openFilm());
  chosenUnit.listen(() => viewer.mark());
  onTheme(() => viewer.redraw());
  viewer.openFilm();
  return viewer;
}

export class Viewer {
  constructor() {
    /** @type {Display} */
    this.display = { tint: currentFilm().classes.length ? "class" : "region", cuts: true, boundary: true, points: true, hidden: new Set() };
    this.camera = new Camera();
    /** @type {Told} */
    const told = {
      hovered: (pane, place) => showRegion(this.region, currentFilm(), pane.mesh, place),
      chosen: (unit) => chosenUnit.set(unit && unit.unit >= 0 ? unit : null),
    };
    this.panes = [new Pane(this.camera, this.display, told), new Pane(this.camera, this.display, told)]; // before and after
    this.isPaired = false;
    this.frame = 0;
    this.wanted = 0; // calls of `show` so far: only the last one may change the picture
    this.train = /** @type {number[]} */ ([]); // frames of the training, and of pruning after the last of these
    this.prune = /** @type {number[]} */ ([]);
    this.sliders = /** @type {FrameSlider[]} */ ([]);
    this.region = el("div", { class: "card" });
    this.unit = el("div", { class: "card", role: "status" });
    this.picker = el("div", { class: "card empty" });
    this.holder = el("div", { class: "panes" });
    /** @type {(sign: string, label: string, act: () => void) => HTMLElement} */
    const zoom = (sign, label, act) => el("button", { type: "button", "aria-label": label, title: label, onclick: act }, sign);
    this.panes[1].holder.append(el("div", { class: "zoom" },
      zoom("+", "Zoom in", () => this.camera.zoom(1.5)),
      zoom("−", "Zoom out", () => this.camera.zoom(1 / 1.5)),
      zoom("All", "Show all", () => this.panes[1].showAll())));
    part("partition", "stage").append(this.holder, el("div", { class: "side" }, this.unit, this.picker, this.region));
    this.pair(false);
  }

  get isPlaying() {
    return this.sliders.some((slider) => slider.isPlaying);
  }

  redraw() {
    this.panes.forEach((pane) => pane.draw());
  }

  /** Shows before and after side by side, or after alone. @param {boolean} isPaired */
  pair(isPaired) {
    this.isPaired = isPaired;
    for (const element of [this.holder, part("partition", "stage")]) element.classList.toggle("two", isPaired);
    this.holder.replaceChildren(...(isPaired ? this.panes : [this.panes[1]]).map((pane) => pane.element));
    this.camera.isWhole = true;
    if (this.sliders.length) this.show(this.frame);
  }

  async openFilm() {
    this.stop();
    const film = currentFilm();
    const framesOf = (/** @type {string} */ stage) => film.frames.map((_, i) => i).filter((i) => film.frames[i].stage === stage);
    this.train = framesOf("train");
    this.prune = [...this.train.slice(-1), ...framesOf("prune")];
    this.display.hidden.clear();
    this.camera.isWhole = true;
    /** @type {Points} */
    const points = await unpack(film.points);
    this.panes.forEach((pane) => Object.assign(pane, { points, mesh: null }));
    this.fillControls(points.label.length > 0);
    showUnitPicker(this.picker, film);
    showRegion(this.region, film, null, null);
    chosenUnit.set(null);
    await this.show(this.train[this.train.length - 1] ?? 0);
  }

  /** @param {boolean} hasPoints */
  fillControls(hasPoints) {
    const film = currentFilm(), { films } = pageData, { display } = this;
    const set = (/** @type {keyof Display} */ key) => (/** @type {string | boolean} */ value) => {
      Object.assign(display, { [key]: value });
      this.redraw();
    };
    const player = { show: this.show.bind(this), shown: () => this.frame, stopAll: () => this.stop() };
    this.sliders = [
      new FrameSlider("Training step", this.train, (i) => `step ${film.frames[i].step}`, player, "last"),
      new FrameSlider("Units kept", this.prune, (i) => percent(film.frames[i].keep, 0), player, "first"),
    ];
    const colours = layerColours(film.layers.length);
    const layers = film.layers.length > 12 ? [] : film.layers.map((_, i) => tick(layerName(film, i), true, (isOn) => {
      display.hidden[isOn ? "delete" : "add"](i);
      this.redraw();
    }, css(colours[i])));
    const choices = films.map((each, i) => /** @type {const} */ ([i, each.name]));
    part("partition", "controls").replaceChildren(
      ...(films.length > 1 ? [choice("Network", choices, chosenFilm.get(), (i) => chosenFilm.set(Number(i)))] : []),
      ...this.sliders.map((slider) => slider.element),
      toggle("Before and after", this.isPaired, (isOn) => this.pair(isOn)),
      choice("Tint by", [["class", "class"], ["region", "region"], ["none", "none"]], display.tint, set("tint")),
      el("fieldset", {}, el("legend", {}, "Show"),
        tick("cuts", display.cuts, set("cuts")),
        tick("decision boundary", display.boundary, set("boundary")),
        film.frames.length && hasPoints ? tick("data", display.points, set("points")) : null),
      ...(layers.length ? [el("fieldset", {}, el("legend", {}, "Layers"), ...layers)] : []),
    );
  }

  stop() {
    for (const slider of this.sliders) {
      slider.isPlaying = false;
      slider.sync(this.frame);
    }
  }

  /** Shows a frame on the right; beside it, if asked, the one before training or before pruning. @param {number} frame */
  async show(frame) {
    const film = currentFilm(), wanted = ++this.wanted;
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

  /** @param {number} frame */
  caption(frame) {
    const film = currentFilm(), { stage, step, keep, regions, facts } = film.frames[frame];
    const isAlone = film.frames.length === 1;
    const when = isAlone ? null : stage === "prune" ? `${percent(keep, 0)} of the units kept` : `training step ${step}`;
    const extra = Object.entries(facts).map(([name, value]) => `${name} ${name.includes("accuracy") ? percent(value) : plain(value)}`);
    const cuts = stage === "prune" ? film.about.cuts : null;
    return [when, `${regions.toLocaleString("en")} regions`, ...extra, film.about.slice, cuts].filter(Boolean).join(" · ");
  }

  /** Thickens the cut of the chosen unit, and more thinly the cuts nearest to it. */
  async mark() {
    const film = currentFilm(), unit = chosenUnit.get();
    await showUnit(this.unit, film, unit, film.frames[this.frame]);
    const table = unit ? await distancesOf(film, unit.layer) : null;
    const near = unit && table ? nearestUnits(table.matrices[table.forms[0]], table.n, unit.unit, 3) : [];
    for (const pane of this.panes) {
      const { mesh } = pane;
      if (!mesh) continue;
      pane.highlights = !unit ? [] : [
        ...near.map(([other]) => ({ edges: mesh.cutOf({ layer: unit.layer, unit: other }), colour: variable("faint"), thick: 1.6 })),
        { edges: mesh.cutOf(unit), colour: variable("ink"), thick: 3 },
      ];
      pane.draw();
    }
  }
}
