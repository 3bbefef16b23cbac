import assert from "node:assert/strict";
import test from "node:test";

import { laneAt, lanesOf, topOf } from "../lanes.js";

const upTo = (rows) => Array.from({ length: rows }, (_, rank) => rank);
const all = { isPlanned: true, isBeside: true };

test("lanes of a row lie below each other, rows too, and all within the canvas", () => {
  for (const rows of [1, 4, 8, 9, 16, 17, 33, 64, 65, 1024]) {
    const layout = lanesOf(upTo(rows), 840, all);
    const { planned, measured, beside } = layout.lanes;
    assert.ok(planned.y + planned.height <= measured.y && measured.y + measured.height <= beside.y);
    assert.ok(beside.y + beside.height <= layout.row);
    assert.ok(topOf(layout, rows - 1, "beside") + beside.height <= layout.axis && layout.axis < layout.height);
    assert.ok(layout.plot.x + layout.plot.width <= 840);
  }
});

test("many rows are low, and share labels", () => {
  const rowOf = (rows) => lanesOf(upTo(rows), 840, all).row;
  assert.ok(rowOf(4) > 40 && rowOf(64) <= 8);
  assert.equal(rowOf(65), 3);
  assert.equal(lanesOf(upTo(4), 840, all).every, 1);
  assert.equal(lanesOf(upTo(100), 840, all).every, 5);
});

test("what there is none of takes no room", () => {
  const { lanes, row } = lanesOf(upTo(4), 840, { isPlanned: false, isBeside: false });
  assert.equal(lanes.planned.height + lanes.beside.height, 0);
  assert.equal(lanes.measured.y, 0);
  assert.ok(row < lanesOf(upTo(4), 840, all).row);
});

test("a height finds its row and lane", () => {
  const layout = lanesOf(upTo(4), 840, all);
  for (const index of [0, 3]) {
    for (const name of ["planned", "measured", "beside"]) {
      assert.deepEqual(laneAt(layout, topOf(layout, index, name) + 1), { index, name });
    }
  }
  assert.equal(laneAt(layout, 0), undefined);
  assert.equal(laneAt(layout, layout.top + layout.row - 1), undefined);
  assert.equal(laneAt(layout, layout.height), undefined);
});
