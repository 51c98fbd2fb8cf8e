// @ts-check
// Convex polygons and lines painted straight into pixels. A canvas smooths the edge of each polygon by itself, so that the
// background shines through between neighbours; here a pixel belongs to the one region that its middle lies in, no seam
// shows, and every machine paints the same picture, with a graphics card or without.

export class Raster {
  /** @param {number} width @param {number} height */
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.left = new Int32Array(height); // first pixel of each row of the polygon at hand
    this.right = new Int32Array(height); // one past its last
    this.first = 0; // its first row
    this.last = 0; // one past its last
  }

  /** @param {number} colour */
  clear(colour) {
    this.pixels.fill(colour);
  }

  /**
   * Marks the rows of a convex polygon and the pixels whose middle lies in it; false if no row has any.
   * Corners ring[from..to) at (xs, ys), counter-clockwise as one sees them: down the left side, up the right.
   *
   * @param {Float64Array} xs @param {Float64Array} ys @param {Int32Array} ring @param {number} from @param {number} to
   */
  span(xs, ys, ring, from, to) {
    let top = Infinity, bottom = -Infinity;
    for (let k = from; k < to; k++) {
      const y = ys[ring[k]];
      if (y < top) top = y;
      if (y > bottom) bottom = y;
    }
    this.first = Math.max(0, Math.ceil(top - 0.5));
    this.last = Math.min(this.height, Math.ceil(bottom - 0.5));
    if (this.first >= this.last) return false;
    for (let k = from; k < to; k++) {
      const a = ring[k], b = ring[k + 1 < to ? k + 1 : from];
      if (ys[a] < ys[b]) this.side(this.left, xs[a], ys[a], xs[b], ys[b]);
      else if (ys[a] > ys[b]) this.side(this.right, xs[b], ys[b], xs[a], ys[a]);
    }
    return true;
  }

  /**
   * Marks where one side crosses each row. Always from the upper end to the lower: the two regions that share the side list
   * its ends in opposite order, and would round differently if each began at its own first end, leaving or doubling pixels.
   *
   * @param {Int32Array} bound @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1
   */
  side(bound, x0, y0, x1, y1) {
    const slope = (x1 - x0) / (y1 - y0), width = this.width;
    const from = Math.max(this.first, Math.ceil(y0 - 0.5)), to = Math.min(this.last, Math.ceil(y1 - 0.5));
    for (let row = from; row < to; row++) {
      const x = Math.ceil(x0 + (row + 0.5 - y0) * slope - 0.5);
      bound[row] = x < 0 ? 0 : x > width ? width : x;
    }
  }

  /** Fills the polygon marked by `span`. @param {number} colour */
  fill(colour) {
    const { pixels, width, left, right } = this;
    for (let row = this.first; row < this.last; row++) {
      const stop = row * width + right[row];
      for (let at = row * width + left[row]; at < stop; at++) pixels[at] = colour;
    }
  }

  /**
   * Fills it with the colour of `kindAt(x, y)` at every pixel. Each kind must be a convex set, as the places are where one
   * affine function is the largest: what both ends of a row are, all between them is, and few places need be asked.
   *
   * @param {(x: number, y: number) => number} kindAt @param {Uint32Array} colours by kind
   */
  fillKinds(kindAt, colours) {
    const { pixels, width, left, right } = this;
    // Pixels from..to of a row, of kinds a and b at its ends; halved until both ends agree.
    /** @type {(row: number, from: number, to: number, a: number, b: number) => void} */
    const fill = (row, from, to, a, b) => {
      if (a === b) pixels.fill(colours[a], row * width + from, row * width + to + 1);
      else if (to - from < 2) {
        pixels[row * width + from] = colours[a];
        pixels[row * width + to] = colours[b];
      } else {
        const middle = (from + to) >> 1, kind = kindAt(middle + 0.5, row + 0.5);
        fill(row, from, middle, a, kind);
        fill(row, middle, to, kind, b);
      }
    };
    for (let row = this.first; row < this.last; row++) {
      const from = left[row], to = right[row] - 1;
      if (from <= to) fill(row, from, to, kindAt(from + 0.5, row + 0.5), kindAt(to + 0.5, row + 0.5));
    }
  }

  /**
   * A smooth line `thick` pixels wide, mixed in with `strength` 0 to 256.
   *
   * @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1
   * @param {number} colour @param {number} strength @param {number} thick
   */
  line(x0, y0, x1, y1, colour, strength, thick) {
    const { width, height } = this, margin = 2 * thick + 1, right = width + margin, low = height + margin;
    if ((x0 < -margin && x1 < -margin) || (x0 > right && x1 > right)) return;
    if ((y0 < -margin && y1 < -margin) || (y0 > low && y1 > low)) return;
    let dx = x1 - x0, dy = y1 - y0;
    if (x0 < -margin || x1 < -margin || x0 > right || x1 > right || y0 < -margin || y1 < -margin || y0 > low || y1 > low) {
      // Deep in a zoom the ends lie 10^12 pixels away. Only the part in sight is painted: the shares of the way at which the
      // line enters and leaves the window, by Liang & Barsky 1984.
      let enter = 0, leave = 1;
      for (const [step, start, end] of [[dx, -margin - x0, right - x0], [dy, -margin - y0, low - y0]]) {
        if (step === 0) continue; // beside the window on this axis: left above
        enter = Math.max(enter, Math.min(start / step, end / step));
        leave = Math.min(leave, Math.max(start / step, end / step));
      }
      if (!(enter < leave)) return;
      [x0, y0, x1, y1] = [x0 + enter * dx, y0 + enter * dy, x0 + leave * dx, y0 + leave * dy];
      [dx, dy] = [x1 - x0, y1 - y0];
    }
    if (Math.abs(dx) >= Math.abs(dy)) {
      if (dx > 0) this.run(x0, y0, x1, dy / dx, width, height, 1, width, colour, strength, thick);
      else if (dx < 0) this.run(x1, y1, x0, dy / dx, width, height, 1, width, colour, strength, thick);
    } else if (dy > 0) this.run(y0, x0, y1, dx / dy, height, width, width, 1, colour, strength, thick);
    else this.run(y1, x1, y0, dx / dy, height, width, width, 1, colour, strength, thick);
  }

  /**
   * Walks a line along its longer axis from (a0, b0) to a1; each step covers some pixels across.
   * `long` and `wide` are the sizes of the picture along and across, `along` and `across` how far apart neighbours lie in memory.
   *
   * @param {number} a0 @param {number} b0 @param {number} a1 @param {number} slope @param {number} long @param {number} wide
   * @param {number} along @param {number} across @param {number} colour @param {number} strength @param {number} thick
   */
  run(a0, b0, a1, slope, long, wide, along, across, colour, strength, thick) {
    const { pixels } = this, half = 0.5 * thick * Math.sqrt(1 + slope * slope);
    const from = Math.max(0, Math.ceil(a0 - 0.5)), to = Math.min(long, Math.ceil(a1 - 0.5));
    const redBlue = colour & 0xff00ff, green = colour & 0xff00; // two channels are mixed in one product, 8 bits apart
    let low = b0 + (from + 0.5 - a0) * slope - half;
    for (let a = from; a < to; a++, low += slope) {
      if (low >= wide) continue; // before `| 0`, which wraps beyond 2^31 and would count the way back pixel by pixel
      const high = low + 2 * half, first = low > 0 ? low | 0 : 0, stop = high < wide ? high : wide;
      for (let b = first; b < stop; b++) {
        const cover = (b + 1 < high ? b + 1 : high) - (b > low ? b : low);
        const share = (strength * cover) | 0, rest = 256 - share, place = a * along + b * across, old = pixels[place];
        pixels[place] = 0xff000000
          | (((Math.imul(old & 0xff00ff, rest) + Math.imul(redBlue, share)) >>> 8) & 0xff00ff)
          | (((Math.imul(old & 0xff00, rest) + Math.imul(green, share)) >>> 8) & 0xff00);
      }
    }
  }
}
