// @ts-check
// Where a partition is looked at: pan, zoom, and how deep a zoom may go.

const DEEPEST = 1e9; // zoom beyond the fit, at most: vertices are known to 1e-16 of the window, a ten-thousandth of a pixel then

/** The middle (u, v) of what is seen, and page pixels for one unit. Before and after share one, so that they move together. */
export class Camera {
  constructor() {
    /** @type {(() => void)[]} */
    this.listeners = [];
    /** @type {(() => number)[]} one a pane: the largest scale that still shows something there, 0 if it shows nothing */
    this.deepest = [];
    this.bounds = [0, 0, 1, 1];
    this.least = 1; // the scale that shows everything
    this.isWhole = true; // follow the size of the pane until somebody moves
    this.u = 0.5;
    this.v = 0.5;
    this.scale = 1;
  }

  /** Shows everything within `bounds`. @param {number[]} bounds @param {number} width @param {number} height */
  fit(bounds, width, height) {
    this.measure(bounds, width, height);
    this.showAll();
  }

  /**
   * Takes note of what there is to see, and of the size of the pane it is seen in.
   *
   * @param {number[]} bounds @param {number} width @param {number} height
   */
  measure(bounds, width, height) {
    this.bounds = bounds;
    this.least = 0.96 * Math.min(width / (bounds[2] - bounds[0]), height / (bounds[3] - bounds[1]));
  }

  showAll() {
    const { bounds } = this;
    this.isWhole = true;
    this.u = (bounds[0] + bounds[2]) / 2;
    this.v = (bounds[1] + bounds[3]) / 2;
    this.scale = this.least;
    this.tell();
  }

  /** Moves the middle, which stays within the bounds. @param {number} du @param {number} dv */
  pan(du, dv) {
    this.isWhole = false;
    this.u = Math.min(Math.max(this.u + du, this.bounds[0]), this.bounds[2]);
    this.v = Math.min(Math.max(this.v + dv, this.bounds[1]), this.bounds[3]);
    this.tell();
  }

  /**
   * Zooms by `factor` and keeps the point (u, v) where it is: out to all there is, in until the smallest region in sight
   * fills the pane. There is nothing to see beyond that, and beyond DEEPEST rounding would move the lines.
   *
   * @param {number} factor
   */
  zoom(factor, u = this.u, v = this.v) {
    if (this.scale * factor <= this.least) return this.showAll();
    const most = Math.min(DEEPEST * this.least, Math.max(...this.deepest.map((of) => of())));
    const scale = factor > 1 ? Math.max(this.scale, Math.min(this.scale * factor, most)) : this.scale * factor;
    const share = 1 - this.scale / scale;
    this.scale = scale;
    this.pan((u - this.u) * share, (v - this.v) * share);
  }

  tell() {
    this.listeners.forEach((listen) => listen());
  }
}
