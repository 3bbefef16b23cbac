import assert from "node:assert/strict";
import test from "node:test";

import { areaPath, cellAt, extent, fractionDone, heatGrid, linePath } from "../layout.js";

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

test("a heat grid holds all cells in rows of equal length, within its room", () => {
  for (const cells of [17, 64, 100, 1024]) {
    for (const room of [200, 420, 840]) {
      const { columns, rows, width, height } = heatGrid(cells, room);
      assert.ok(columns * rows >= cells && columns * (rows - 1) < cells);
      assert.ok(Math.abs(columns * width - room) < 1e-9 && width >= 6);
      assert.ok(rows * height <= 88 && height >= 2);
    }
  }
  assert.equal(heatGrid(64, 840).rows, 1);
});

test("a point finds its cell", () => {
  const grid = { columns: 4, rows: 2, width: 10, height: 20 };
  assert.equal(cellAt(grid, 7, 5, 5), 0);
  assert.equal(cellAt(grid, 7, 25, 35), 6);
  assert.equal(cellAt(grid, 7, 35, 35), -1);
  assert.equal(cellAt(grid, 7, 45, 5), -1);
});

test("the part done counts epochs and steps", () => {
  const at = (epoch, epochs, step, steps) => fractionDone({ epoch, epochs, step, steps });
  assert.equal(at(0, 5, 0, null), 0);
  assert.equal(at(1, 5, 50, 100), 0.1);
  assert.equal(at(5, 5, 100, 100), 1);
  assert.equal(at(2, 4, 7, null), 0.25);
  assert.equal(at(1, 1, 7, null), null);
});
