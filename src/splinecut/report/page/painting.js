// @ts-check
// The exact picture of a partition: regions, cuts, decision boundary and highlighted edges, painted into a raster.

import { CLASSES, isDark, layerColours, mix, pastel, pixel, rgb, variable } from "./theme.js";

/** @import { Mesh } from "./mesh.js" */
/** @import { Display, Highlight, Scene } from "./types.d.ts" */

/** @typedef {{ key: string, classes: Uint32Array, regions: Uint32Array }} Palette the pixel of every class and region */

/** Paints all; returns the number of regions in sight. @param {Scene} scene @param {Highlight[]} highlights */
export function paintPartition(scene, highlights) {
  const { raster, display } = scene;
  project(scene);
  raster.clear(pixel(rgb(variable("card"))));
  const visible = paintRegions(scene);
  if (display.cuts) paintCuts(scene, visible);
  if (display.boundary) paintBoundary(scene);
  for (const highlight of highlights) paintHighlight(scene, highlight);
  return visible;
}

/**
 * Where every vertex lies on the canvas: once for each, since its regions and edges share it. In double precision: deep in a
 * zoom the numbers reach 10^12, where neighbouring numbers of single precision are 65,536 pixels apart.
 *
 * @param {Scene} scene
 */
function project({ mesh, xs, ys, transform: { scale, left, top } }) {
  for (let i = 0; i < xs.length; i++) {
    xs[i] = left + scale * mesh.vertices[2 * i];
    ys[i] = top - scale * mesh.vertices[2 * i + 1];
  }
}

/** Fills the regions in sight and counts them. @param {Scene} scene */
function paintRegions({ mesh, raster, xs, ys, display, transform: { scale, left, top } }) {
  const { box, offsets, ring } = mesh;
  const [u0, u1] = [-left / scale, (raster.width - left) / scale], [v0, v1] = [(top - raster.height) / scale, top / scale];
  const { regions, classes } = palette(mesh, display), isByClass = display.tint === "class";
  let seen = 0;
  for (let r = 0; r < mesh.n; r++) {
    if (box[4 * r] > u1 || box[4 * r + 2] < u0 || box[4 * r + 1] > v1 || box[4 * r + 3] < v0) continue;
    seen++;
    if (!raster.span(xs, ys, ring, offsets[r], offsets[r + 1])) continue;
    if (isByClass && mesh.isSplit[r]) {
      raster.fillKinds((x, y) => mesh.classAt(r, (x - left) / scale, (top - y) / scale), classes);
    } else raster.fill(regions[r]);
  }
  return seen;
}

/** @type {WeakMap<Mesh, Palette>} the last palette of each mesh: as many colours as regions, and a frame has no time for them */
const palettes = new WeakMap();

/** The colour of every class, and of every region by what the reader chose. @param {Mesh} mesh @param {Display} display */
function palette(mesh, { tint }) {
  const dark = isDark(), key = `${tint} ${dark}`, known = palettes.get(mesh);
  if (known?.key === key) return known;
  const ground = rgb(variable("paper")), blank = pixel(ground);
  const tints = CLASSES.map((colour) => pixel(mix(ground, rgb(colour), dark ? 0.32 : 0.24)));
  const hues = Array.from({ length: 256 }, (_, hue) => pixel(pastel(hue, dark)));
  /** @type {Record<Display["tint"], (region: number) => number>} */
  const colourBy = { class: (r) => tints[mesh.winner[r] % tints.length], region: (r) => hues[mesh.hue[r]], none: () => blank };
  const made = {
    key,
    classes: Uint32Array.from({ length: Math.max(2, mesh.outputs) }, (_, each) => tints[each % tints.length]),
    regions: Uint32Array.from({ length: mesh.n }, (_, r) => colourBy[tint](r)),
  };
  palettes.set(mesh, made);
  return made;
}

/**
 * Thinner and paler the more regions are in sight: at full strength 50,000 of them are one dark blot.
 *
 * @param {Scene} scene @param {number} visible
 */
function paintCuts({ mesh, raster, xs, ys, ratio, display }, visible) {
  const { edges, ends, edgeLayer } = mesh;
  const crowd = 1 + (visible / 3000) * (1e6 / (raster.width * raster.height));
  const strength = Math.round(256 * Math.max(0.35, crowd ** -0.35)), thick = Math.max(0.8, 1.25 * ratio * crowd ** -0.25);
  const dark = isDark();
  const colours = layerColours(mesh.layers.length).map((colour) => pixel(dark ? mix(colour, [255, 255, 255], 0.2) : colour));
  for (let i = 0; i < edges.length; i++) {
    const layer = edgeLayer[edges[i]];
    if (display.hidden.has(layer)) continue;
    const a = ends[2 * i], b = ends[2 * i + 1];
    raster.line(xs[a], ys[a], xs[b], ys[b], colours[layer], strength, thick);
  }
}

/** Edges in one colour, with a halo that lifts them off the cuts below. @param {Scene} scene @param {Highlight} highlight */
function paintHighlight({ mesh, raster, xs, ys, ratio }, { edges, colour, thick }) {
  for (const width of [thick + 2, thick]) {
    const paint = pixel(rgb(width === thick ? colour : variable("halo")));
    for (const i of edges) {
      const a = mesh.ends[2 * i], b = mesh.ends[2 * i + 1];
      raster.line(xs[a], ys[a], xs[b], ys[b], paint, 256, width * ratio);
    }
  }
}

/** @param {Scene} scene */
function paintBoundary({ mesh: { boundary }, raster, ratio, transform: { scale, left, top } }) {
  for (const [name, width, strength] of /** @type {const} */ ([["halo", 4.2, 200], ["red", 2.2, 256]])) {
    const colour = pixel(rgb(variable(name)));
    for (let s = 0; s < boundary.length; s += 4) {
      raster.line(
        left + scale * boundary[s], top - scale * boundary[s + 1], left + scale * boundary[s + 2], top - scale * boundary[s + 3],
        colour, strength, width * ratio,
      );
    }
  }
}
