// @ts-check
// Shapes of marks: they tell series and classes apart where colours do not.

/**
 * A closed path through corners around (0, 0).
 *
 * @param {[number, number][]} corners
 * @returns {(x: number, y: number, r: number) => string}
 */
const polygon = (...corners) => (x, y, r) => `M${corners.map(([dx, dy]) => `${x + dx * r},${y + dy * r}`).join("L")}Z`;

const SHAPES = [
  (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ r) => // a circle
    `M${x - r},${y}a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0Z`,
  polygon([-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]), // square
  polygon([0, -1.2], [1.2, 0], [0, 1.2], [-1.2, 0]), // diamond
  polygon([0, -1.15], [1.1, 0.85], [-1.1, 0.85]), // triangle
  polygon( // cross
    [-1.1, -0.4], [-0.4, -0.4], [-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4],
    [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4],
  ),
  polygon([0, 1.15], [1.1, -0.85], [-1.1, -0.85]), // triangle, point down
];

/**
 * The path of shape `number` around (x, y), about `r` in radius; numbers beyond the last shape begin again.
 *
 * @param {number} number
 * @param {number} x
 * @param {number} y
 * @param {number} r
 */
export const shapePath = (number, x, y, r) => SHAPES[number % SHAPES.length](x, y, r);
