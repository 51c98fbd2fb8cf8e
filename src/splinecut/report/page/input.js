// @ts-check
// Mouse, fingers and keys over a pane. Drag, pinch and keys move the camera, and so does the wheel with Ctrl or after a click.
// A plain wheel belongs to the page, which most readers only scroll through.

/** @import { Pane } from "./pane.js" */
/** @import { Place } from "./types.d.ts" */

const HINT = 1400; // milliseconds that the hint on how to zoom stays
const PINCH = 50; // a wheel with Ctrl and smaller steps than this is a pinch on a trackpad; a notch of a wheel is 100 or more
const CLICK = 5; // pixels that a pointer may move between down and up and still click
const REACH = 8; // pixels from a cut within which a click chooses it

export class PaneInput {
  /** @param {Pane} pane */
  constructor(pane) {
    this.pane = pane;
    this.camera = pane.camera;
    /** @type {Map<number, PointerEvent>} the last event of each pointer that is down */
    this.pointers = new Map();
    this.moved = 0; // pixels since the last one went down
    this.isHeld = false; // whether a plain wheel zooms
    this.fading = 0; // the timer that hides the hint
    const { over, holder } = pane;
    over.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    over.addEventListener("click", () => this.hold(true)); // from here on the wheel is ours, until the picture is left
    holder.addEventListener("pointerleave", () => this.hold(false));
    over.addEventListener("dblclick", (event) => this.camera.zoom(2, ...this.at(event)));
    over.addEventListener("pointerdown", (event) => this.press(event));
    over.addEventListener("pointermove", (event) => this.move(event));
    over.addEventListener("pointerup", (event) => this.release(event));
    over.addEventListener("pointercancel", (event) => this.release(event));
    over.addEventListener("pointerleave", () => pane.pointAt(null));
    over.addEventListener("keydown", (event) => this.key(event));
    over.addEventListener("blur", () => {
      this.hold(false);
      pane.pointAt(null);
    });
  }

  /** (u, v) under a pointer. @param {MouseEvent} event @returns {Place} */
  at(event) {
    const box = this.pane.over.getBoundingClientRect();
    const { u, v, scale } = this.camera;
    return [u + (event.clientX - box.left - box.width / 2) / scale, v - (event.clientY - box.top - box.height / 2) / scale];
  }

  /** Zooms if somebody asked for it; else lets the page scroll and says how to ask. @param {WheelEvent} event */
  wheel(event) {
    const isAsked = event.ctrlKey || event.metaKey; // browsers report a pinch on a trackpad as a wheel with Ctrl
    if (!isAsked && !this.isHeld) return this.flash();
    event.preventDefault();
    const isPinch = event.ctrlKey && !event.deltaMode && Math.abs(event.deltaY) < PINCH;
    const rate = event.deltaMode ? 0.05 : isPinch ? 0.01 : 0.0016; // lines, or pixels of a page that scrolls
    this.camera.zoom(Math.exp(-event.deltaY * rate), ...this.at(event));
  }

  /** @param {boolean} isHeld */
  hold(isHeld) {
    this.isHeld = isHeld;
    this.pane.holder.classList.toggle("held", isHeld);
    if (isHeld) this.pane.hint.classList.remove("shown");
  }

  flash() {
    const { hint } = this.pane;
    hint.classList.add("shown");
    clearTimeout(this.fading);
    this.fading = setTimeout(() => hint.classList.remove("shown"), HINT);
  }

  /** @param {PointerEvent} event */
  press(event) {
    this.pane.over.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, event);
    this.moved = 0;
  }

  /** @param {PointerEvent} event */
  move(event) {
    const last = this.pointers.get(event.pointerId);
    if (!last) return this.pane.pointAt(this.at(event));
    const dx = event.clientX - last.clientX, dy = event.clientY - last.clientY;
    this.moved += Math.abs(dx) + Math.abs(dy);
    const other = [...this.pointers.values()].find((each) => each.pointerId !== event.pointerId);
    if (other) this.camera.zoom(apart(event, other) / Math.max(1, apart(last, other)), ...this.at(other));
    this.pointers.set(event.pointerId, event);
    const share = other ? 0.5 : 1; // of two fingers each brings half of the way of their middle
    this.camera.pan((-dx * share) / this.camera.scale, (dy * share) / this.camera.scale);
  }

  /** @param {PointerEvent} event */
  release(event) {
    const wasDown = this.pointers.delete(event.pointerId);
    if (wasDown && event.type === "pointerup" && this.moved < CLICK) this.pane.choose(...this.at(event), REACH);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { camera, pane } = this, step = 40 / camera.scale;
    /** @type {Record<string, () => void>} */
    const acts = {
      ArrowLeft: () => camera.pan(-step, 0), ArrowRight: () => camera.pan(step, 0),
      ArrowUp: () => camera.pan(0, step), ArrowDown: () => camera.pan(0, -step),
      "+": () => camera.zoom(1.25), "=": () => camera.zoom(1.25), "-": () => camera.zoom(0.8),
      0: () => pane.showAll(), Enter: () => pane.choose(camera.u, camera.v, Infinity),
      Escape: () => {
        this.hold(false);
        pane.told.chosen(null);
      },
    };
    const act = acts[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
    if (event.key !== "Escape") pane.pointAt([camera.u, camera.v]);
  }
}

/** @param {PointerEvent} a @param {PointerEvent} b */
const apart = (a, b) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
