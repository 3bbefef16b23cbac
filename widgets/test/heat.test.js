import assert from "node:assert/strict";
import test from "node:test";

import { cividis, heatColumns, heatPixels, heatRows, heatSpan, rateOfRow } from "../heat.js";

const point = (elapsed, rates) => ({ elapsed, rates });

test("rows are as high as there is room for, and very many ranks share them", () => {
  assert.deepEqual(heatRows(17), { fold: 1, rows: 17, height: 8 });
  assert.deepEqual(heatRows(64), { fold: 1, rows: 64, height: 3 });
  assert.deepEqual(heatRows(1024), { fold: 4, rows: 256, height: 1 });
  assert.equal(rateOfRow([5, 4, 3, 9], 1, 2), 3); // the slowest of ranks 2 and 3
});

test("columns are equally long in time, however far points are apart", () => {
  const history = [0, 4, 8, 9, 10].map((elapsed) => point(elapsed, [1]));
  assert.deepEqual(heatColumns(history, 5), [1, 1, 2, 2, 4]);
  assert.deepEqual(heatColumns([point(3, [1])], 1), [0]);
});

test("colours span most rates, and noise alone is no contrast", () => {
  const wide = Array.from({ length: 101 }, (_, i) => point(i, [i]));
  assert.deepEqual(heatSpan(wide), [5, 95]);
  assert.deepEqual(heatSpan([point(0, [100, 99]), point(1, [100, 99])]), [80, 100]);
});

test("cividis goes from dark blue to yellow, lighter all the way", () => {
  assert.deepEqual(cividis(0), [0, 34, 78]);
  assert.deepEqual(cividis(1), [254, 232, 56]);
  assert.deepEqual(cividis(NaN), cividis(-1));
  const light = Array.from({ length: 50 }, (_, i) => cividis(i / 49)).map(([r, g, b]) => 0.3 * r + 0.6 * g + 0.1 * b);
  assert.ok(light.every((value, i) => i === 0 || value > light[i - 1]));
});

test("pixels go rank by rank through time", () => {
  const history = [point(0, [0, 10]), point(1, [10, 0])];
  const pixels = heatPixels(history, [0, 1, 1], heatRows(2), [0, 10]);
  const [low, high] = [[...cividis(0), 255], [...cividis(1), 255]];
  assert.deepEqual([...pixels], [low, high, high, high, low, low].flat());
});
