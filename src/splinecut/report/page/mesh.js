"use strict";
// One partition in memory, and the questions asked of it: which region, which cut, which affine map.

class Mesh {
  /** `arrays` of a frame as stored, `about` its header, `layers` [name, units, positions] of the whole network. */
  constructor(arrays, about, layers) {
    Object.assign(this, { about, layers, outputs: about.outputs });
    Object.assign(this, { vertices: arrays.vertices, ring: arrays.ring, affine: arrays.affine, hue: arrays.hue });
    Object.assign(this, { edgeLayer: arrays.edge_layer, edgeUnit: arrays.edge_unit });
    Object.assign(this, { boundary: arrays.boundary, boundaryRegion: arrays.boundary_region });
    this.n = arrays.corners.length;
    this.offsets = new Int32Array(this.n + 1);
    for (let r = 0; r < this.n; r++) this.offsets[r + 1] = this.offsets[r] + arrays.corners[r];
    this.measure();
    this.edges = this.listEdges();
    this.isSplit = new Uint8Array(this.n); // whether the decision boundary runs through the region
    for (const region of this.boundaryRegion) this.isSplit[region] = 1;
  }

  /** Bounding boxes and the class that wins in the middle of every region. */
  measure() {
    const { n, offsets, ring, vertices } = this;
    this.box = new Float64Array(4 * n);
    this.winner = new Int16Array(n);
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
    const side = (axis, pick) => vertices.reduce((best, value, i) => (i % 2 === axis ? pick(best, value) : best), vertices[axis]);
    this.bounds = [side(0, Math.min), side(1, Math.min), side(0, Math.max), side(1, Math.max)];
  }

  /** Every edge inside the window once, as its place in the ring; later layers first, so that earlier ones lie on top. */
  listEdges() {
    const { n, offsets, ring, edgeLayer } = this, places = this.layers.map(() => []), onward = new Int32Array(ring.length);
    for (let r = 0; r < n; r++) {
      for (let k = offsets[r]; k < offsets[r + 1]; k++) {
        onward[k] = this.next(r, k);
        if (edgeLayer[k] >= 0 && ring[k] < ring[onward[k]]) places[edgeLayer[k]].push(k);
      }
    }
    const edges = Int32Array.from(places.reverse().flat());
    this.ends = new Int32Array(2 * edges.length); // the two vertices of each edge
    for (let i = 0; i < edges.length; i++) {
      this.ends[2 * i] = ring[edges[i]];
      this.ends[2 * i + 1] = ring[onward[edges[i]]];
    }
    return edges;
  }

  /** The size of the smallest region that a window shows some of, by the longer side of its box; Infinity if it shows none. */
  smallest(left, low, right, high) {
    const { box, n } = this;
    let least = Infinity;
    for (let at = 0; at < 4 * n; at += 4) {
      if (box[at] > right || box[at + 2] < left || box[at + 1] > high || box[at + 3] < low) continue;
      least = Math.min(least, Math.max(box[at + 2] - box[at], box[at + 3] - box[at + 1]));
    }
    return least;
  }

  next(region, place) {
    return place + 1 < this.offsets[region + 1] ? place + 1 : this.offsets[region];
  }

  /** [a, b, c] of every output on a region: output = a u + b v + c. */
  maps(region) {
    const start = 3 * this.outputs * region;
    return Array.from({ length: this.outputs }, (_, o) => Array.from(this.affine.subarray(start + 3 * o, start + 3 * o + 3)));
  }

  /** The class that wins at a point of a region; of equal ones the lower. One output decides by its sign. */
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

  /** How deep a point lies in a convex region: distance to its nearest side, negative outside. */
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

  /** The region that a point lies deepest in, -1 outside the window. */
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

  /** The edge nearest to a point and within `reach`, as its number in `edges`; -1 if there is none. */
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

  /** Whose cut an edge lies on, as a unit of the whole network: {layer, unit}; unit -1 where nobody knows. */
  owner(edge) {
    const place = this.edges[edge], layer = this.edgeLayer[place];
    const own = Math.floor(this.edgeUnit[place] / this.layers[layer][2]);
    return { layer, unit: this.about.origin[layer][own] ?? -1 };
  }

  /** The edges that a unit of the whole network cuts. */
  cutOf({ layer, unit }) {
    const own = this.about.origin[layer].indexOf(unit), positions = this.layers[layer][2], found = [];
    if (own < 0) return found;
    for (let i = 0; i < this.edges.length; i++) {
      const place = this.edges[i];
      if (this.edgeLayer[place] === layer && Math.floor(this.edgeUnit[place] / positions) === own) found.push(i);
    }
    return found;
  }

  has({ layer, unit }) {
    return this.about.origin[layer].includes(unit);
  }
}

const meshes = new Map();

/** The mesh of a frame; a promise, the same one each time. */
function meshOf(film, frame) {
  const { blob } = film.frames[frame];
  if (!meshes.has(blob)) meshes.set(blob, unpack(blob).then((arrays) => new Mesh(arrays, film.frames[frame], film.layers)));
  return meshes.get(blob);
}
