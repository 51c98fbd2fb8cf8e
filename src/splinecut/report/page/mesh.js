// @ts-check
// One partition in memory, and the questions asked of it: which region, which cut, which affine map.
//
// Regions share vertices: a corner is a place in `ring`, which holds the number of a vertex, and neighbours name the same one.
// So a vertex is stored and projected once, and both regions beside an edge know it by the same two numbers; with coordinates
// of their own, four regions would repeat each vertex, and edges would have to be matched by comparing floats.
//
// Questions go through all regions or edges in a plain loop over typed arrays: 0.2 ms to locate a point in 54,131 regions, 2 ms for
// the nearest edge, at most once a frame; so no tree has to be built for each of the frames that a slider passes over.

import { unpack } from "./data.js";

/** @import { Film, Frame, FrameArrays, Layer, Unit } from "./types.d.ts" */

export class Mesh {
  /** @param {FrameArrays} arrays @param {Frame} about @param {Layer[]} layers of the dense network */
  constructor(arrays, about, layers) {
    this.about = about;
    this.layers = layers;
    this.outputs = about.outputs;
    this.vertices = arrays.vertices;
    this.ring = arrays.ring;
    this.affine = arrays.affine;
    this.hue = arrays.hue;
    this.edgeLayer = arrays.edge_layer;
    this.edgeUnit = arrays.edge_unit;
    this.boundary = arrays.boundary;
    this.n = arrays.corners.length;
    this.offsets = new Int32Array(this.n + 1); // region r has the places offsets[r]..offsets[r + 1] of the ring
    for (let r = 0; r < this.n; r++) this.offsets[r + 1] = this.offsets[r] + arrays.corners[r];
    this.box = new Float64Array(4 * this.n); // left, low, right, high of every region
    this.winner = new Int16Array(this.n); // the class in its middle
    this.bounds = this.measure();
    this.edges = this.listEdges();
    this.ends = this.listEnds();
    this.isSplit = new Uint8Array(this.n); // whether the decision boundary runs through the region
    for (const region of arrays.boundary_region) this.isSplit[region] = 1;
  }

  /** Fills `box` and `winner`; returns the box around all. */
  measure() {
    const { n, offsets, ring, vertices } = this;
    for (let r = 0; r < n; r++) {
      let left = Infinity, low = Infinity, right = -Infinity, high = -Infinity, u = 0, v = 0;
      for (let k = offsets[r]; k < offsets[r + 1]; k++) {
        const x = vertices[2 * ring[k]], y = vertices[2 * ring[k] + 1];
        if (x < left) left = x;
        if (x > right) right = x;
        if (y < low) low = y;
        if (y > high) high = y;
        u += x;
        v += y;
      }
      this.box[4 * r] = left;
      this.box[4 * r + 1] = low;
      this.box[4 * r + 2] = right;
      this.box[4 * r + 3] = high;
      const corners = offsets[r + 1] - offsets[r];
      this.winner[r] = this.classAt(r, u / corners, v / corners);
    }
    const bounds = [vertices[0], vertices[1], vertices[0], vertices[1]];
    for (let i = 0; i < vertices.length; i += 2) {
      bounds[0] = Math.min(bounds[0], vertices[i]);
      bounds[1] = Math.min(bounds[1], vertices[i + 1]);
      bounds[2] = Math.max(bounds[2], vertices[i]);
      bounds[3] = Math.max(bounds[3], vertices[i + 1]);
    }
    return bounds;
  }

  /**
   * Every edge inside the window once, as its place in the ring; later layers first, so that earlier ones lie on top.
   * Both regions beside an edge list it, in opposite directions: the one that goes from the lower vertex number counts.
   */
  listEdges() {
    const { n, offsets, ring, edgeLayer } = this, places = this.layers.map(() => /** @type {number[]} */ ([]));
    for (let r = 0; r < n; r++) {
      for (let k = offsets[r]; k < offsets[r + 1]; k++) {
        if (edgeLayer[k] >= 0 && ring[k] < ring[this.next(r, k)]) places[edgeLayer[k]].push(k);
      }
    }
    return Int32Array.from(places.reverse().flat());
  }

  /** The two vertices of each of `edges`. */
  listEnds() {
    const { n, offsets, ring, edges } = this, ends = new Int32Array(2 * edges.length), onward = new Int32Array(ring.length);
    for (let r = 0; r < n; r++) for (let k = offsets[r]; k < offsets[r + 1]; k++) onward[k] = this.next(r, k);
    for (let i = 0; i < edges.length; i++) {
      ends[2 * i] = ring[edges[i]];
      ends[2 * i + 1] = ring[onward[edges[i]]];
    }
    return ends;
  }

  /**
   * The size of the smallest region that a window shows some of, by the longer side of its box; Infinity if it shows none.
   *
   * @param {number} left @param {number} low @param {number} right @param {number} high
   */
  smallest(left, low, right, high) {
    const { box, n } = this;
    let least = Infinity;
    for (let at = 0; at < 4 * n; at += 4) {
      if (box[at] > right || box[at + 2] < left || box[at + 1] > high || box[at + 3] < low) continue;
      least = Math.min(least, Math.max(box[at + 2] - box[at], box[at + 3] - box[at + 1]));
    }
    return least;
  }

  /** The place after `place` around a region. @param {number} region @param {number} place */
  next(region, place) {
    return place + 1 < this.offsets[region + 1] ? place + 1 : this.offsets[region];
  }

  /** [a, b, c] of every output on a region: output = a u + b v + c. @param {number} region */
  maps(region) {
    const start = 3 * this.outputs * region;
    return Array.from({ length: this.outputs }, (_, o) => Array.from(this.affine.subarray(start + 3 * o, start + 3 * o + 3)));
  }

  /**
   * The class that wins at a point of a region; of equal ones the lower. One output decides by its sign.
   *
   * @param {number} region @param {number} u @param {number} v
   */
  classAt(region, u, v) {
    const { affine, outputs } = this, start = 3 * outputs * region;
    let best = 0, most = outputs === 1 ? 0 : -Infinity;
    for (let o = 0; o < outputs; o++) {
      const at = start + 3 * o, value = affine[at] * u + affine[at + 1] * v + affine[at + 2];
      if (value > most) {
        most = value;
        best = outputs === 1 ? 1 : o;
      }
    }
    return best;
  }

  /**
   * How deep a point lies in a convex region: distance to its nearest side, negative outside.
   *
   * @param {number} region @param {number} u @param {number} v
   */
  depth(region, u, v) {
    const { offsets, ring, vertices } = this;
    let least = Infinity;
    for (let k = offsets[region]; k < offsets[region + 1]; k++) {
      const a = 2 * ring[k], b = 2 * ring[this.next(region, k)];
      const dx = vertices[b] - vertices[a], dy = vertices[b + 1] - vertices[a + 1], length = Math.hypot(dx, dy);
      if (length > 0) least = Math.min(least, (dx * (v - vertices[a + 1]) - dy * (u - vertices[a])) / length);
    }
    return least;
  }

  /**
   * The region that a point lies deepest in, -1 outside the window. Not "the first that contains it": on a common edge, or
   * deep in a zoom, rounding may put a point outside both neighbours, or in both.
   *
   * @param {number} u @param {number} v
   */
  locate(u, v) {
    const { box, n } = this, slack = 1e-12 * (this.bounds[2] - this.bounds[0] + Math.abs(u) + Math.abs(v));
    let found = -1, best = -slack;
    for (let r = 0; r < n; r++) {
      const at = 4 * r;
      if (u < box[at] - slack || u > box[at + 2] + slack || v < box[at + 1] - slack || v > box[at + 3] + slack) continue;
      const depth = this.depth(r, u, v);
      if (depth > best) [found, best] = [r, depth];
    }
    return found;
  }

  /**
   * The edge nearest to a point and within `reach`, as its number in `edges`; -1 if there is none.
   *
   * @param {number} u @param {number} v @param {number} reach
   */
  nearestEdge(u, v, reach) {
    const { ends, vertices } = this;
    let found = -1, best = reach * reach;
    for (let i = 0; i < this.edges.length; i++) {
      const a = 2 * ends[2 * i], b = 2 * ends[2 * i + 1];
      const x = vertices[a], y = vertices[a + 1], dx = vertices[b] - x, dy = vertices[b + 1] - y;
      const share = Math.min(1, Math.max(0, ((u - x) * dx + (v - y) * dy) / (dx * dx + dy * dy || 1)));
      const distance = (x + share * dx - u) ** 2 + (y + share * dy - v) ** 2;
      if (distance < best) [found, best] = [i, distance];
    }
    return found;
  }

  /** Whose cut an edge lies on; unit -1 where that is not known. @param {number} edge @returns {Unit} */
  owner(edge) {
    const place = this.edges[edge], layer = this.edgeLayer[place];
    const own = Math.floor(this.edgeUnit[place] / this.layers[layer][2]);
    return { layer, unit: this.about.origin[layer][own] ?? -1 };
  }

  /** The edges that a unit of the dense network cuts. @param {Unit} unit */
  cutOf({ layer, unit }) {
    const own = this.about.origin[layer].indexOf(unit), positions = this.layers[layer][2];
    /** @type {number[]} */
    const found = [];
    if (own < 0) return found;
    for (let i = 0; i < this.edges.length; i++) {
      const place = this.edges[i];
      if (this.edgeLayer[place] === layer && Math.floor(this.edgeUnit[place] / positions) === own) found.push(i);
    }
    return found;
  }
}

/** @type {Map<number, Promise<Mesh>>} */
const meshes = new Map();

/** The mesh of a frame; a promise, the same one each time. @param {Film} film @param {number} frame */
export function meshOf(film, frame) {
  const about = film.frames[frame];
  const known = meshes.get(about.blob)
    ?? unpack(about.blob).then((arrays) => new Mesh(/** @type {FrameArrays} */ (arrays), about, film.layers));
  meshes.set(about.blob, known);
  return known;
}
