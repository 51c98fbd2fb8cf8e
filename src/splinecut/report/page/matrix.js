// @ts-check
// A square table of numbers as coloured cells, with a cursor that mouse and keyboard move alike.

import { context2d, el, plain, svg, tip } from "./elements.js";
import { css, pixel, ramp } from "./theme.js";

/** @typedef {[row: number, column: number, height: number, width: number, kind: "row" | "gone"]} CellFrame */

/** @type {Record<string, [number, number]>} */
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** A heat map; `pick(i, j)` is called for a chosen cell, `tell(i, j)` for the one under the cursor. */
export class HeatMap {
  /**
   * @param {string} label
   * @param {{ tell: (i: number, j: number) => string, pick?: (i: number, j: number) => void }} told
   */
  constructor(label, { tell, pick = () => {} }) {
    this.tell = tell;
    this.pick = pick;
    this.n = 0;
    /** @type {[row: number, column: number]} */
    this.cursor = [0, 0];
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.marks = svg("svg", { class: "marks", "aria-hidden": "true" });
    this.legend = el("canvas", { width: 128, height: 1, "aria-hidden": "true" });
    this.ends = [el("span"), el("span")];
    this.frame = el("div", {
      class: "cells", tabindex: 0, role: "application", "aria-label": `${label}; arrow keys move, Enter chooses`,
      onpointermove: (event) => this.hover(event),
      onpointerleave: () => tip(null),
      onclick: (event) => this.pick(...this.cell(event)),
      onkeydown: (event) => this.key(event),
    }, this.canvas, this.marks);
    this.element = el("div", { class: "matrix" }, this.frame, el("div", { class: "ramp" }, this.ends[0], this.legend, this.ends[1]));
  }

  /**
   * Shows `value(i, j)` of an n x n table; dark is 0, bright is `top` or more. One canvas pixel a cell, enlarged by the style
   * sheet: an element a cell would be 16,384 elements for a layer of 128 units.
   *
   * @param {number} n
   * @param {(i: number, j: number) => number} value
   * @param {number} top
   */
  show(n, value, top) {
    this.n = n;
    this.canvas.width = this.canvas.height = Math.max(1, n);
    const context = context2d(this.canvas);
    const image = context.createImageData(this.canvas.width, this.canvas.height);
    const cells = new Uint32Array(image.data.buffer);
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) cells[i * n + j] = pixel(ramp(value(i, j) / (top || 1)));
    context.putImageData(image, 0, 0);
    this.marks.setAttribute("viewBox", `0 0 ${n} ${n}`);
    this.ends[0].textContent = "0";
    this.ends[1].textContent = plain(top);
    this.paintLegend();
  }

  paintLegend() {
    const context = context2d(this.legend);
    for (let i = 0; i < 128; i++) {
      context.fillStyle = css(ramp(i / 127));
      context.fillRect(i, 0, 1, 1);
    }
  }

  /** Frames cells, or crosses them out. @param {CellFrame[]} frames */
  mark(frames) {
    const still = { "vector-effect": "non-scaling-stroke" }; // lines as thick as on the page, however many cells
    this.marks.replaceChildren(...frames.map(([i, j, height, width, kind]) => svg("g", { class: kind },
      svg("rect", { x: j, y: i, width, height, ...still }),
      kind === "gone" ? svg("path", { d: `M${j},${i}l1,1m0,-1l-1,1`, ...still }) : null)));
  }

  /** The cell under the pointer. @param {MouseEvent} event @returns {[row: number, column: number]} */
  cell(event) {
    const box = this.canvas.getBoundingClientRect();
    const at = (/** @type {number} */ share) => Math.min(this.n - 1, Math.max(0, Math.floor(share * this.n)));
    return [at((event.clientY - box.top) / box.height), at((event.clientX - box.left) / box.width)];
  }

  /** @param {PointerEvent} event */
  hover(event) {
    this.cursor = this.cell(event);
    tip(this.tell(...this.cursor), event.clientX, event.clientY);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = STEPS[event.key];
    if (event.key === "Enter" || event.key === " ") this.pick(...this.cursor);
    else if (step) {
      const moved = (/** @type {0 | 1} */ axis) => Math.min(this.n - 1, Math.max(0, this.cursor[axis] + step[axis]));
      this.cursor = [moved(0), moved(1)];
      const box = this.canvas.getBoundingClientRect(), side = box.width / this.n;
      tip(this.tell(...this.cursor), box.left + (this.cursor[1] + 0.5) * side, box.top + (this.cursor[0] + 0.5) * side);
    } else return;
    event.preventDefault();
  }
}
