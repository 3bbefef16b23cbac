import assert from "node:assert/strict";
import test from "node:test";

import { areaPath, extent, fractionDone, linePath } from "../layout.js";

const BOX = { width: 100, height: 21 };

test("a line fills its box, with y upwards", () => {
  const path = linePath([[0, 0], [5, 1], [10, 2]], BOX, { x: [0, 10], y: [0, 2] });
  assert.equal(path, "M0 20L50 10.5L100 1");
});

test("a value that is not finite breaks the line", () => {
  const points = [[0, 0], [1, NaN], [2, 1], [3, 1]];
  assert.equal(linePath(points, BOX, { x: [0, 3], y: [0, 1] }).match(/M/g).length, 2);
});

test("one point shows as a dash, a flat line in the middle, none as nothing", () => {
  assert.equal(linePath([[1, 5]], BOX, { x: [1, 1], y: [5, 5] }), "M50 10.5h2");
  assert.equal(linePath([[0, 5], [1, 5]], BOX, { x: [0, 1], y: [5, 5] }), "M0 10.5L100 10.5");
  assert.equal(linePath([], BOX, { x: [0, 1], y: [0, 1] }), "");
});

test("an area is closed on the floor of the box", () => {
  assert.equal(areaPath([[0, 1], [1, 1]], BOX, { x: [0, 1], y: [0, 1] }), "M0 1L100 1L100 21L0 21Z");
  assert.equal(areaPath([[0, 1]], BOX, { x: [0, 1], y: [0, 1] }), "");
});

test("the extent leaves out what is not finite", () => {
  assert.deepEqual(extent([3, NaN, -1, Infinity]), [-1, 3]);
  assert.deepEqual(extent([NaN]), [0, 1]);
});

test("the part done counts epochs and steps", () => {
  const at = (epoch, epochs, step, steps) => fractionDone({ epoch, epochs, step, steps });
  assert.equal(at(0, 5, 0, null), 0);
  assert.equal(at(1, 5, 50, 100), 0.1);
  assert.equal(at(5, 5, 100, 100), 1);
  assert.equal(at(2, 4, 7, null), 0.25);
  assert.equal(at(1, 1, 7, null), null);
});
