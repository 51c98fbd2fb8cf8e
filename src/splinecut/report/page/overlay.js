// @ts-check
// What lies above the regions, on a canvas of its own: data points, the region under the pointer, the cross of the keyboard.
// Painted in every frame, also while the picture below is only slid.

import { context2d, el } from "./elements.js";
import { shapePath } from "./shapes.js";
import { CLASSES, css, isDark, mix, rgb, variable } from "./theme.js";

/** @import { Place, Points, Scene } from "./types.d.ts" */

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Scene} scene
 * @param {Points | null} points null where none are shown
 * @param {Place | null} hover
 */
export function paintOverlay(canvas, scene, points, hover) {
  const context = context2d(canvas), { width, height } = canvas;
  context.clearRect(0, 0, width, height);
  if (points) paintPoints(context, scene, points);
  if (hover) outlineRegion(context, scene, hover);
  if (document.activeElement === canvas && canvas.matches(":focus-visible")) {
    context.fillStyle = variable("ink");
    context.fillRect(width / 2 - 9 * scene.ratio, height / 2 - 1, 18 * scene.ratio, 2);
    context.fillRect(width / 2 - 1, height / 2 - 9 * scene.ratio, 2, 18 * scene.ratio);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Scene} scene @param {Points} points */
function paintPoints(context, { ratio, raster, transform: { scale, left, top } }, { uv, label }) {
  const radius = (label.length > 60 ? 2.7 : 6) * ratio;
  for (let i = 0; i < label.length; i++) {
    const x = left + scale * uv[2 * i], y = top - scale * uv[2 * i + 1];
    if (x < -9 || y < -9 || x > raster.width + 9 || y > raster.height + 9) continue;
    const sprite = pointSprite(label[i], radius);
    context.drawImage(sprite, Math.round(x - sprite.width / 2), Math.round(y - sprite.height / 2));
  }
}

/** @param {CanvasRenderingContext2D} context @param {Scene} scene @param {Place} hover */
function outlineRegion(context, { mesh, xs, ys, ratio }, hover) {
  const region = mesh.locate(...hover);
  if (region < 0) return;
  context.beginPath();
  for (let k = mesh.offsets[region]; k < mesh.offsets[region + 1]; k++) context.lineTo(xs[mesh.ring[k]], ys[mesh.ring[k]]);
  context.closePath();
  context.lineWidth = 2 * ratio;
  context.strokeStyle = variable("ink");
  context.stroke();
}

/** @type {Map<string, HTMLCanvasElement>} */
const sprites = new Map();

/**
 * A small picture of a data point, whose colour and shape both tell its class. Made once for each class, size and theme:
 * copying it costs a fraction of filling a path.
 *
 * @param {number} label @param {number} radius
 */
function pointSprite(label, radius) {
  const key = `${label} ${radius} ${isDark()}`, known = sprites.get(key);
  if (known) return known;
  const side = Math.ceil(3 * radius + 2), canvas = el("canvas", { width: side, height: side });
  const context = context2d(canvas), path = new Path2D(shapePath(label, side / 2, side / 2, radius));
  context.fillStyle = css(mix(rgb(CLASSES[label % CLASSES.length]), isDark() ? [255, 255, 255] : [0, 0, 0], 0.25));
  context.strokeStyle = variable("halo");
  context.lineWidth = Math.max(1, radius * 0.3);
  context.fill(path);
  context.stroke(path);
  sprites.set(key, canvas);
  return canvas;
}
