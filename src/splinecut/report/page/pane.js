// @ts-check
// One picture of a partition on the page: its canvases and their size, when it is painted, and its print.
// A picture that takes longer than a frame is slid and stretched while it moves, and painted exactly as soon as it rests.

import { context2d, el } from "./elements.js";
import { PaneInput } from "./input.js";
import { paintOverlay } from "./overlay.js";
import { paintPartition } from "./painting.js";
import { Raster } from "./raster.js";
import { variable } from "./theme.js";

/** @import { Camera } from "./camera.js" */
/** @import { Mesh } from "./mesh.js" */
/** @import { Display, Highlight, Place, Points, Scene, Transform, Unit } from "./types.d.ts" */

/** @typedef {{ hovered: (pane: Pane, place: Place | null) => void, chosen: (unit: Unit | null) => void }} Told */

const FRAME = 12; // milliseconds of painting that fit into a frame at 60 a second, with room for the browser's own work
const REST = 90; // milliseconds without a move that count as rest
const STALE = 250; // milliseconds a picture may be slid before it is painted anew even while it moves
const MOST_STRETCH = 8; // a picture stretched further than this shows nothing of what it should
const PRINTED = 1260; // pixels across a printed picture: 200 an inch on its 160 mm
const MOST_PIXELS = 2; // device pixels a page pixel, at most; more would not be seen and cost time

export class Pane {
  /** @param {Camera} camera @param {Display} display @param {Told} told hears of hovering and choosing */
  constructor(camera, display, told) {
    this.camera = camera;
    this.display = display;
    this.told = told;
    this.mesh = /** @type {Mesh | null} */ (null);
    this.points = /** @type {Points | null} */ (null);
    this.hover = /** @type {Place | null} */ (null);
    this.highlights = /** @type {Highlight[]} */ ([]);
    this.under = el("canvas", { "aria-hidden": "true" });
    this.over = el("canvas", {
      class: "over", tabindex: 0, role: "application",
      "aria-label": "Partition: arrow keys move, plus and minus zoom, 0 shows all, Enter chooses the cut nearest the middle",
    });
    this.caption = el("figcaption", { "aria-live": "off" });
    this.hint = el("div", { class: "hint", "aria-hidden": "true" }, `hold ${/Mac/.test(navigator.platform) ? "⌘" : "Ctrl"} to zoom`);
    this.holder = el("div", { class: "canvases" }, this.under, this.over, this.hint);
    this.element = el("figure", { class: "pane" }, this.holder, this.caption);
    this.image = /** @type {HTMLImageElement | null} */ (null); // what is printed, while it is
    this.context = context2d(this.under, { alpha: false });
    this.ratio = 1; // canvas pixels a page pixel
    this.raster = /** @type {Raster | null} */ (null); // null until the pane has a size
    this.xs = this.ys = new Float64Array(0); // where every vertex lies on the canvas
    this.visible = 0; // regions in the last exact picture
    this.still = el("canvas"); // that picture, if it took longer than a frame
    this.exact = { u: 0, v: 0, scale: 0, cost: 0, at: 0 }; // where it looked, what it took, when it was painted
    this.isWaiting = false; // for the next frame
    this.hasOnlyMoved = true; // since the last frame: nothing but the camera has changed
    this.rest = 0; // the timer that paints exactly after a slide
    this.input = new PaneInput(this);
    camera.listeners.push(() => this.draw(true));
    camera.deepest.push(() => this.deepest());
    new ResizeObserver(() => this.resize()).observe(this.holder);
  }

  /** @param {Place | null} place */
  pointAt(place) {
    this.hover = place;
    this.told.hovered(this, place);
    this.draw();
  }

  /** Chooses the unit whose cut is nearest, within so many page pixels. @param {number} u @param {number} v @param {number} pixels */
  choose(u, v, pixels) {
    const edge = this.mesh ? this.mesh.nearestEdge(u, v, pixels / this.camera.scale) : -1;
    this.told.chosen(this.mesh && edge >= 0 ? this.mesh.owner(edge) : null);
  }

  /** The scale at which the smallest region now in sight fills the pane; 0 for a pane that is not shown. */
  deepest() {
    const { clientWidth: width, clientHeight: height } = this.holder, { u, v, scale } = this.camera;
    if (!this.mesh || !this.element.isConnected) return 0;
    const smallest = this.mesh.smallest(u - width / 2 / scale, v - height / 2 / scale, u + width / 2 / scale, v + height / 2 / scale);
    return Math.max(width, height) / smallest;
  }

  showAll() {
    if (this.mesh) this.camera.fit(this.mesh.bounds, this.holder.clientWidth, this.holder.clientHeight);
  }

  resize() {
    if (this.image || !this.size(Math.min(MOST_PIXELS, devicePixelRatio || 1))) return;
    if (this.camera.isWhole) this.showAll();
    else if (this.mesh) this.camera.measure(this.mesh.bounds, this.holder.clientWidth, this.holder.clientHeight);
    this.draw();
  }

  /** Makes room for `ratio` pixels a page pixel; false if the pane has no size. @param {number} ratio */
  size(ratio) {
    const width = Math.round(this.holder.clientWidth * ratio), height = Math.round(this.holder.clientHeight * ratio);
    if (!width || !height) return false;
    this.ratio = ratio;
    for (const canvas of [this.under, this.over, this.still]) Object.assign(canvas, { width, height });
    this.raster = new Raster(width, height);
    return true;
  }

  /** Puts an image of what is in sight over the canvases, painted at once and finely enough for paper. */
  print() {
    if (!this.mesh || !this.element.isConnected || !this.size(PRINTED / this.holder.clientWidth)) return;
    this.hover = null;
    this.paint();
    this.context.drawImage(this.over, 0, 0);
    this.image = el("img", { src: this.under.toDataURL(), alt: this.caption.textContent });
    this.holder.append(this.image);
  }

  /** Takes it away; the canvases get the size of the screen again. */
  endPrint() {
    if (!this.image) return;
    this.image.remove();
    this.image = null;
    this.resize();
  }

  /** @param {Mesh} mesh */
  show(mesh) {
    const isFirst = !this.mesh;
    this.mesh = mesh;
    this.xs = new Float64Array(mesh.vertices.length / 2);
    this.ys = new Float64Array(mesh.vertices.length / 2);
    if (isFirst || this.camera.isWhole) this.showAll();
    this.draw();
  }

  /** Paints once in the next frame, however often it is called; `isMoving` says that only the camera has moved. */
  draw(isMoving = false) {
    this.hasOnlyMoved &&= isMoving;
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      const canSlide = this.hasOnlyMoved && this.isStillUsable();
      this.isWaiting = false;
      this.hasOnlyMoved = true;
      if (canSlide) this.slide();
      else this.paint();
    });
  }

  /** Whether the last exact picture took long enough to be worth sliding, and is recent and near enough to be recognised. */
  isStillUsable() {
    const { cost, at, scale } = this.exact, stretch = this.camera.scale / scale;
    return cost > FRAME && performance.now() - at < STALE && stretch < MOST_STRETCH && stretch > 1 / MOST_STRETCH;
  }

  /** From (u, v) to pixels of the canvas, as the camera stands or stood. @returns {Transform} */
  transform({ u, v, scale } = /** @type {{ u: number, v: number, scale: number }} */ (this.camera)) {
    const s = scale * this.ratio;
    return { scale: s, left: this.under.width / 2 - u * s, top: this.under.height / 2 + v * s };
  }

  /** What is painted now; null while there is nothing to paint, or nowhere. @returns {Scene | null} */
  scene() {
    const { mesh, raster, xs, ys, ratio, display } = this;
    if (!mesh || !raster || !this.element.isConnected) return null;
    return { mesh, raster, xs, ys, ratio, display, transform: this.transform() };
  }

  /** The last exact picture moved to where it now belongs; painted anew once the camera rests. */
  slide() {
    const scene = this.scene();
    if (!scene) return;
    const { width, height } = scene.raster, now = scene.transform, then = this.transform(this.exact), zoom = now.scale / then.scale;
    this.context.fillStyle = variable("card");
    this.context.fillRect(0, 0, width, height);
    this.context.drawImage(this.still, now.left - then.left * zoom, now.top - then.top * zoom, width * zoom, height * zoom);
    paintOverlay(this.over, scene, this.display.points ? this.points : null, this.hover);
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.draw(), REST);
  }

  /** The exact picture. It is kept for sliding only where painting is slow: the copy costs time, too. */
  paint() {
    const begun = performance.now(), scene = this.scene();
    if (!scene) return;
    clearTimeout(this.rest);
    this.visible = paintPartition(scene, this.highlights);
    this.context.putImageData(scene.raster.image, 0, 0);
    const { u, v, scale } = this.camera, cost = performance.now() - begun;
    if (cost > FRAME) context2d(this.still, { alpha: false }).putImageData(scene.raster.image, 0, 0);
    this.exact = { u, v, scale, cost, at: performance.now() };
    paintOverlay(this.over, scene, this.display.points ? this.points : null, this.hover);
  }
}
