"use strict";
// One picture of a partition: regions and cuts painted as pixels, data points over them; drag, pinch and keys move it, and so
// does the wheel with Ctrl or after a click. A plain wheel belongs to the page, which most readers only scroll through.
// A picture that takes longer than a frame is slid and stretched while it moves, and painted exactly as soon as it rests.

const FRAME = 12; // milliseconds of painting that fit into a frame at 60 a second, with room for the browser's own work
const REST = 90; // milliseconds without a move that count as rest
const STALE = 250; // milliseconds a picture may be slid before it is painted anew even while it moves
const DEEPEST = 1e9; // zoom beyond the fit, at most: vertices are known to 1e-16 of the window, a ten-thousandth of a pixel then
const MOST_STRETCH = 8; // a picture stretched further than this shows nothing of what it should
const HINT = 1400; // milliseconds that the hint on how to zoom stays
const PINCH = 50; // a wheel with Ctrl and smaller steps than this is a pinch on a trackpad; a notch of a wheel is 100 or more
const PRINTED = 1260; // pixels across a printed picture: 200 an inch on its 160 mm
const MOST_PIXELS = 2; // device pixels a page pixel, at most; more would not be seen and cost time

/** Where a pane looks: the middle (u, v), and page pixels for one unit. Several panes may share one. */
class View {
  constructor() {
    this.listeners = [];
    this.deepest = []; // functions, one a pane: the largest scale that still shows something there, 0 if it shows nothing
    this.bounds = [0, 0, 1, 1];
    this.least = 1; // the scale that shows everything
    this.isWhole = true; // follow the size of the pane until somebody moves
    [this.u, this.v, this.scale] = [0.5, 0.5, 1];
  }

  fit(bounds, width, height) {
    this.measure(bounds, width, height);
    this.showAll();
  }

  /** Takes note of what there is to see, and of the size of the pane it is seen in. */
  measure(bounds, width, height) {
    this.bounds = bounds;
    this.least = 0.96 * Math.min(width / (bounds[2] - bounds[0]), height / (bounds[3] - bounds[1]));
  }

  showAll() {
    const { bounds } = this;
    this.isWhole = true;
    [this.u, this.v, this.scale] = [(bounds[0] + bounds[2]) / 2, (bounds[1] + bounds[3]) / 2, this.least];
    this.tell();
  }

  pan(du, dv) {
    this.isWhole = false;
    this.u = Math.min(Math.max(this.u + du, this.bounds[0]), this.bounds[2]);
    this.v = Math.min(Math.max(this.v + dv, this.bounds[1]), this.bounds[3]);
    this.tell();
  }

  /** Zooms by `factor` and keeps the point (u, v) where it is: out to all there is, in until there is nothing more to see. */
  zoom(factor, u = this.u, v = this.v) {
    if (this.scale * factor <= this.least) return this.showAll();
    const most = Math.min(DEEPEST * this.least, Math.max(...this.deepest.map((of) => of())));
    const scale = factor > 1 ? Math.max(this.scale, Math.min(this.scale * factor, most)) : this.scale * factor;
    const share = 1 - this.scale / scale;
    this.isWhole = false;
    this.scale = scale;
    this.pan((u - this.u) * share, (v - this.v) * share);
  }

  tell() {
    this.listeners.forEach((listen) => listen());
  }
}

class Pane {
  /** `look` is what to show: tint, cuts, boundary, points, hidden layers; `told` hears of hovering and choosing. */
  constructor(view, look, told) {
    Object.assign(this, { view, look, told, mesh: null, points: null, hover: null, highlights: [] });
    this.under = el("canvas", { "aria-hidden": "true" });
    this.over = el("canvas", {
      class: "over", tabindex: 0, role: "application",
      "aria-label": "Partition: arrow keys move, plus and minus zoom, 0 shows all, Enter chooses the cut nearest the middle",
    });
    this.caption = el("figcaption", { "aria-live": "off" });
    this.hint = el("div", { class: "hint", "aria-hidden": "true" }, `hold ${/Mac/.test(navigator.platform) ? "⌘" : "Ctrl"} to zoom`);
    this.holder = el("div", { class: "canvases" }, this.under, this.over, this.hint);
    this.element = el("figure", { class: "pane" }, this.holder, this.caption);
    this.context = this.under.getContext("2d", { alpha: false });
    this.still = el("canvas"); // the last exact picture
    this.exact = { cost: 0, at: 0 }; // where it looked, what it took, when it was painted
    this.pointers = new Map();
    this.listen();
    view.listeners.push(() => this.draw(true));
    view.deepest.push(() => this.deepest());
    new ResizeObserver(() => this.resize()).observe(this.holder);
  }

  listen() {
    const { over } = this;
    over.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    over.addEventListener("click", () => this.hold(true)); // from here on the wheel is ours, until the picture is left
    this.holder.addEventListener("pointerleave", () => this.hold(false));
    over.addEventListener("dblclick", (event) => this.view.zoom(2, ...this.at(event)));
    over.addEventListener("pointerdown", (event) => this.press(event));
    over.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) over.addEventListener(name, (event) => this.release(event));
    over.addEventListener("pointerleave", () => this.pointAt(null));
    over.addEventListener("keydown", (event) => this.key(event));
    over.addEventListener("blur", () => {
      this.hold(false);
      this.pointAt(null);
    });
  }

  /** Zooms if somebody asked for it; else lets the page scroll and says how to ask. */
  wheel(event) {
    const isAsked = event.ctrlKey || event.metaKey; // browsers report a pinch on a trackpad as a wheel with Ctrl
    if (!isAsked && !this.isHeld) return this.flash();
    event.preventDefault();
    const isPinch = event.ctrlKey && !event.deltaMode && Math.abs(event.deltaY) < PINCH;
    const rate = event.deltaMode ? 0.05 : isPinch ? 0.01 : 0.0016; // lines, or pixels of a page that scrolls
    return this.view.zoom(Math.exp(-event.deltaY * rate), ...this.at(event));
  }

  hold(isHeld) {
    this.isHeld = isHeld;
    this.holder.classList.toggle("held", isHeld);
    if (isHeld) this.hint.classList.remove("shown");
  }

  flash() {
    this.hint.classList.add("shown");
    clearTimeout(this.fading);
    this.fading = setTimeout(() => this.hint.classList.remove("shown"), HINT);
  }

  press(event) {
    this.over.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, event);
    this.moved = 0;
  }

  move(event) {
    const last = this.pointers.get(event.pointerId);
    if (!last) return this.pointAt(this.at(event), event);
    const dx = event.clientX - last.clientX, dy = event.clientY - last.clientY;
    this.moved += Math.abs(dx) + Math.abs(dy);
    const other = [...this.pointers.values()].find((each) => each.pointerId !== event.pointerId);
    if (other) {
      const apart = (a, b) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
      this.view.zoom(apart(event, other) / Math.max(1, apart(last, other)), ...this.at(other));
    }
    this.pointers.set(event.pointerId, event);
    const share = other ? 0.5 : 1;
    return this.view.pan((-dx * share) / this.view.scale, (dy * share) / this.view.scale);
  }

  release(event) {
    const wasDown = this.pointers.delete(event.pointerId);
    if (wasDown && event.type === "pointerup" && this.moved < 5) this.choose(...this.at(event));
  }

  key(event) {
    const step = 40 / this.view.scale;
    const acts = {
      ArrowLeft: () => this.view.pan(-step, 0), ArrowRight: () => this.view.pan(step, 0),
      ArrowUp: () => this.view.pan(0, step), ArrowDown: () => this.view.pan(0, -step),
      "+": () => this.view.zoom(1.25), "=": () => this.view.zoom(1.25), "-": () => this.view.zoom(0.8),
      0: () => this.showAll(), Enter: () => this.choose(this.view.u, this.view.v, Infinity),
      Escape: () => {
        this.hold(false);
        this.told.chosen(null);
      },
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    acts[event.key]();
    if (event.key !== "Escape") this.pointAt([this.view.u, this.view.v]);
  }

  /** (u, v) under a pointer. */
  at(event) {
    const box = this.over.getBoundingClientRect();
    const { u, v, scale } = this.view;
    return [u + (event.clientX - box.left - box.width / 2) / scale, v - (event.clientY - box.top - box.height / 2) / scale];
  }

  pointAt(place) {
    this.hover = place;
    this.told.hovered(this, place);
    this.draw();
  }

  choose(u, v, pixels = 8) {
    const edge = this.mesh ? this.mesh.nearestEdge(u, v, pixels / this.view.scale) : -1;
    this.told.chosen(edge < 0 ? null : this.mesh.owner(edge));
  }

  /** The scale at which the smallest region now in sight fills the pane; 0 for a pane that is not shown. */
  deepest() {
    const { clientWidth: width, clientHeight: height } = this.holder, { u, v, scale } = this.view;
    if (!this.mesh || !this.element.isConnected) return 0;
    const smallest = this.mesh.smallest(u - width / 2 / scale, v - height / 2 / scale, u + width / 2 / scale, v + height / 2 / scale);
    return Math.max(width, height) / smallest;
  }

  showAll() {
    if (this.mesh) this.view.fit(this.mesh.bounds, this.holder.clientWidth, this.holder.clientHeight);
  }

  resize() {
    if (this.image || !this.size(Math.min(MOST_PIXELS, devicePixelRatio || 1))) return;
    if (this.view.isWhole) this.showAll();
    else if (this.mesh) this.view.measure(this.mesh.bounds, this.holder.clientWidth, this.holder.clientHeight);
    this.draw();
  }

  /** Makes room for `ratio` pixels a page pixel; false if the pane has no size. */
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

  show(mesh) {
    const isFirst = !this.mesh;
    this.mesh = mesh;
    this.xs = new Float64Array(mesh.vertices.length / 2);
    this.ys = new Float64Array(mesh.vertices.length / 2);
    if (isFirst || this.view.isWhole) this.showAll();
    this.draw();
  }

  /** Paints once in the next frame, however often it is called; `isMoving` says that only the view has changed. */
  draw(isMoving = false) {
    this.isMoving = isMoving && this.isMoving !== false;
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      const stretch = this.view.scale / this.exact.scale;
      const canSlide = this.isMoving && this.exact.cost > FRAME && performance.now() - this.exact.at < STALE
        && stretch < MOST_STRETCH && stretch > 1 / MOST_STRETCH;
      this.isWaiting = false;
      this.isMoving = undefined;
      if (!this.mesh || !this.raster || !this.element.isConnected) return;
      if (canSlide) this.slide();
      else this.paint();
    });
  }

  /** Pixels of the canvas for one unit, and where (0, 0) lies on it. */
  frame({ u, v, scale } = this.view) {
    const s = scale * this.ratio;
    return { scale: s, left: this.raster.width / 2 - u * s, top: this.raster.height / 2 + v * s };
  }

  /** The last exact picture moved to where it now belongs; painted anew once the view rests. */
  slide() {
    const { raster, exact } = this, now = this.frame(), then = this.frame(exact), zoom = now.scale / then.scale;
    this.context.fillStyle = variable("card");
    this.context.fillRect(0, 0, raster.width, raster.height);
    this.context.drawImage(this.still, now.left - then.left * zoom, now.top - then.top * zoom, raster.width * zoom, raster.height * zoom);
    this.paintOver(now);
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.draw(), REST);
  }

  /** The exact picture. */
  paint() {
    const begun = performance.now(), { mesh, raster, xs, ys } = this, frame = this.frame(), { scale, left, top } = frame;
    clearTimeout(this.rest);
    for (let i = 0; i < xs.length; i++) {
      xs[i] = left + scale * mesh.vertices[2 * i];
      ys[i] = top - scale * mesh.vertices[2 * i + 1];
    }
    raster.clear(pixel(rgb(variable("card"))));
    this.visible = this.paintRegions(frame);
    if (this.look.cuts) this.paintCuts();
    if (this.look.boundary) this.paintBoundary(frame);
    this.highlights.forEach(({ edges, colour, thick }) => this.paintEdges(edges, colour, thick));
    this.context.putImageData(raster.image, 0, 0);
    const { u, v, scale: zoom } = this.view, cost = performance.now() - begun;
    if (cost > FRAME) this.still.getContext("2d", { alpha: false }).putImageData(raster.image, 0, 0);
    this.exact = { u, v, scale: zoom, cost, at: performance.now() };
    this.paintOver(frame);
  }

  /** Fills the regions in sight and counts them. */
  paintRegions({ scale, left, top }) {
    const { mesh, raster, xs, ys } = this, { box, offsets, ring } = mesh;
    const [u0, u1] = [-left / scale, (raster.width - left) / scale], [v0, v1] = [(top - raster.height) / scale, top / scale];
    const { colours, kinds } = this.palette(), isByClass = this.look.tint === "class";
    let seen = 0;
    for (let r = 0; r < mesh.n; r++) {
      if (box[4 * r] > u1 || box[4 * r + 2] < u0 || box[4 * r + 1] > v1 || box[4 * r + 3] < v0) continue;
      seen++;
      if (!raster.span(xs, ys, ring, offsets[r], offsets[r + 1])) continue;
      if (isByClass && mesh.isSplit[r]) {
        raster.fillKinds((x, y) => mesh.classAt(r, (x - left) / scale, (top - y) / scale), kinds);
      } else raster.fill(colours[r]);
    }
    return seen;
  }

  /** The colour of every class, and of every region by what the reader chose; the same until something else is chosen. */
  palette() {
    const dark = isDark(), { mesh, look } = this, key = `${look.tint} ${dark}`;
    if (mesh.palette?.key === key) return mesh.palette;
    const ground = rgb(variable("paper")), blank = pixel(ground);
    const classes = CLASSES.map((colour) => pixel(mix(ground, rgb(colour), dark ? 0.32 : 0.24)));
    const hues = Array.from({ length: 256 }, (_, hue) => pixel(pastel(hue, dark)));
    const of = { class: (r) => classes[mesh.winner[r] % classes.length], region: (r) => hues[mesh.hue[r]], none: () => blank }[look.tint];
    const kinds = Uint32Array.from({ length: Math.max(2, mesh.outputs) }, (_, each) => classes[each % classes.length]);
    mesh.palette = { key, kinds, colours: Uint32Array.from({ length: mesh.n }, (_, r) => of(r)) };
    return mesh.palette;
  }

  paintCuts() {
    const { mesh, raster, xs, ys } = this, { edges, ends, edgeLayer } = mesh;
    const crowd = 1 + (this.visible / 3000) * (1e6 / (raster.width * raster.height));
    const strength = Math.round(256 * Math.max(0.35, crowd ** -0.35)), thick = Math.max(0.8, 1.25 * this.ratio * crowd ** -0.25);
    const colours = layerColours(mesh.layers.length).map((colour) => pixel(isDark() ? mix(colour, [255, 255, 255], 0.2) : colour));
    for (let i = 0; i < edges.length; i++) {
      const layer = edgeLayer[edges[i]];
      if (this.look.hidden.has(layer)) continue;
      const a = ends[2 * i], b = ends[2 * i + 1];
      raster.line(xs[a], ys[a], xs[b], ys[b], colours[layer], strength, thick);
    }
  }

  paintEdges(edges, colour, thick) {
    const { mesh, raster, xs, ys } = this;
    for (const width of [thick + 2, thick]) {
      const paint = pixel(rgb(width === thick ? colour : variable("halo")));
      for (const i of edges) {
        const a = mesh.ends[2 * i], b = mesh.ends[2 * i + 1];
        raster.line(xs[a], ys[a], xs[b], ys[b], paint, 256, width * this.ratio);
      }
    }
  }

  paintBoundary({ scale, left, top }) {
    const { raster } = this, { boundary } = this.mesh;
    for (const [name, width, strength] of [["halo", 4.2, 200], ["red", 2.2, 256]]) {
      const colour = pixel(rgb(variable(name)));
      for (let s = 0; s < boundary.length; s += 4) {
        raster.line(left + scale * boundary[s], top - scale * boundary[s + 1], left + scale * boundary[s + 2], top - scale * boundary[s + 3], colour, strength, width * this.ratio);
      }
    }
  }

  /** What lies above the pixels: data points, the region under the pointer, the cross of the keyboard. */
  paintOver({ scale, left, top }) {
    const context = this.over.getContext("2d"), { raster, ratio, points } = this;
    context.clearRect(0, 0, raster.width, raster.height);
    if (this.look.points && points) {
      for (let i = 0; i < points.label.length; i++) {
        const x = left + scale * points.uv[2 * i], y = top - scale * points.uv[2 * i + 1];
        if (x < -9 || y < -9 || x > raster.width + 9 || y > raster.height + 9) continue;
        const sprite = pointSprite(points.label[i], (points.label.length > 60 ? 2.7 : 6) * ratio);
        context.drawImage(sprite, Math.round(x - sprite.width / 2), Math.round(y - sprite.height / 2));
      }
    }
    if (this.hover) this.paintHover(context);
    if (document.activeElement === this.over && this.over.matches(":focus-visible")) {
      context.fillStyle = variable("ink");
      context.fillRect(raster.width / 2 - 9 * ratio, raster.height / 2 - 1, 18 * ratio, 2);
      context.fillRect(raster.width / 2 - 1, raster.height / 2 - 9 * ratio, 2, 18 * ratio);
    }
  }

  paintHover(context) {
    const { mesh, xs, ys } = this, region = mesh.locate(...this.hover);
    if (region < 0) return;
    context.beginPath();
    for (let k = mesh.offsets[region]; k < mesh.offsets[region + 1]; k++) context.lineTo(xs[mesh.ring[k]], ys[mesh.ring[k]]);
    context.closePath();
    context.lineWidth = 2 * this.ratio;
    context.strokeStyle = variable("ink");
    context.stroke();
  }
}

const sprites = new Map();

/** A small picture of a data point: colour and shape both tell its class. */
function pointSprite(label, radius) {
  const key = `${label} ${radius} ${isDark()}`;
  if (!sprites.has(key)) {
    const side = Math.ceil(3 * radius + 2), canvas = el("canvas", { width: side, height: side });
    const context = canvas.getContext("2d"), path = new Path2D(shapePath(SHAPES[label % SHAPES.length], side / 2, side / 2, radius));
    context.fillStyle = css(mix(rgb(CLASSES[label % CLASSES.length]), isDark() ? [255, 255, 255] : [0, 0, 0], 0.25));
    context.strokeStyle = variable("halo");
    context.lineWidth = Math.max(1, radius * 0.3);
    context.fill(path);
    context.stroke(path);
    sprites.set(key, canvas);
  }
  return sprites.get(key);
}
