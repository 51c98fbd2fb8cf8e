// Types that several scripts share: the data that report/build.py embeds in the page, and what the views pass around.
// Only the type checker reads this file; it is not part of the page.

import type { Mesh } from "./mesh.js";
import type { Raster } from "./raster.js";

// --- The data in the page: keys and units as report/build.py and report/rows.py write them.

export interface PageData {
  groups: GroupRow[];
  runs: RunRow[];
  detections: Detection[];
  films: Film[];
  blobs: BlobEntry[][]; // what is in each blob
}

/** Mean over seeds, half the width of its 95 % interval (null with one seed), and the number of seeds. */
export type Estimate = [mean: number, half: number | null, n: number];

/** Which weights were tested: the last, the best by validation, or those right after the cut. */
export type Moment = "last" | "best" | "after cut";

/** Runs that differ in their seed only. */
export interface GroupRow {
  task: string;
  series: string; // the method as a reader names it; "dense" is the network that was not pruned
  budget: string;
  keep: number;
  is_accuracy: boolean; // whether `test` holds accuracies; else losses
  test: Record<Moment, Estimate | null>;
  parameters: Estimate;
  forward_flops: Estimate;
  paper_flops: Estimate;
  full_flops: Estimate;
  seconds: Estimate;
  runs: number[]; // places in PageData.runs
}

export interface RunRow {
  name: string;
  digest: string;
  task: string;
  series: string;
  budget: string;
  seed: number;
  test: Record<Moment, number | null>;
  is_accuracy: boolean;
  parameters: number;
  forward_flops: number;
  paper_flops: number;
  full_flops: number;
  seconds: number;
}

/** What the early-bird detector of one run compared. */
export interface Detection {
  name: string;
  seed: number;
  rule: "paper" | "authors";
  threshold: number;
  window: number;
  every: "epoch" | number; // how often it looked: each epoch, or each so many steps
  epochs: number;
  drawn: number | null;
  layers: string[];
  distances: number[][]; // [layer][look]: from each look to the next
  matrix: number[][] | null; // every look against every other, mean over layers
  matrices: Record<string, number[][]> | null; // the same by layer
}

/** The partitions of one network. */
export interface Film {
  name: string;
  layers: Layer[];
  classes: string[];
  about: Record<string, string>;
  points: number; // the blob of its data points
  frames: Frame[];
  redundancy: { layer: number; forms: string[]; blob: number }[];
}

export type Layer = [name: string, units: number, positions: number];

/** One partition without its arrays, which are in `blob`. */
export interface Frame {
  stage: "train" | "prune";
  step: number;
  keep: number;
  facts: Record<string, number>;
  outputs: number;
  origin: number[][]; // [layer][unit]: which unit of the dense network it is, -1 where that is not known
  regions: number;
  blob: number;
}

export type BlobEntry = [name: string, type: string, start: number, length: number];

/** The arrays of a frame; experiments/film/frames.py says what each holds. */
export interface FrameArrays {
  vertices: Float64Array;
  affine: Float32Array;
  boundary: Float64Array;
  ring: Int32Array;
  edge_unit: Int32Array;
  boundary_region: Int32Array;
  edge_layer: Int16Array;
  corners: Uint16Array;
  hue: Uint8Array;
}

export interface Points {
  uv: Float64Array;
  label: Int32Array;
}

/** Distances between the units of a layer: `order` puts near ones together, `matrices` are n x n, by form of N_rho. */
export interface UnitDistances {
  n: number;
  forms: string[];
  order: Int32Array;
  matrices: Record<string, Float32Array>;
}

// --- What the scripts pass to each other.

export type Colour = number[]; // [r, g, b], 0 to 255

/** A place of the slice, in its own units. */
export type Place = [u: number, v: number];

/** A unit of the dense network. */
export interface Unit {
  layer: number;
  unit: number;
}

/** A value that several views show. */
export interface Shared<T> {
  get(): T;
  set(next: T): void;
  listen(listener: (value: T) => void): void;
}

export interface Scale {
  at(value: number): number;
  ticks: number[];
}

export interface LinearScale extends Scale {
  back(place: number): number;
}

/** The part of a chart inside its axes. */
export interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** What the reader chose to see of a partition. */
export interface Display {
  tint: "class" | "region" | "none";
  cuts: boolean;
  boundary: boolean;
  points: boolean;
  hidden: Set<number>; // layers whose cuts are not shown
}

/** From (u, v) to pixels of a canvas: x = left + scale u, y = top - scale v. */
export interface Transform {
  scale: number;
  left: number;
  top: number;
}

/** Edges painted over the cuts; `edges` are numbers in `Mesh.edges`. */
export interface Highlight {
  edges: number[];
  colour: string;
  thick: number;
}

/** All that painting a partition needs; `xs` and `ys` are where each vertex lies on the canvas. */
export interface Scene {
  mesh: Mesh;
  raster: Raster;
  xs: Float64Array;
  ys: Float64Array;
  ratio: number; // canvas pixels a page pixel
  transform: Transform;
  display: Display;
}

type Listeners = {
  [Name in keyof HTMLElementEventMap as `on${Name}`]?: (event: HTMLElementEventMap[Name]) => void;
};

/** Attributes of a new element, and listeners under the names "onclick" and so on. */
export type Attributes = Listeners & { [attribute: string]: unknown };

declare global {
  interface Uint8ArrayConstructor {
    fromBase64?(text: string): Uint8Array<ArrayBuffer>; // not in all browsers yet
  }
}
