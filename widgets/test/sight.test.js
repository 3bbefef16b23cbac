import assert from "node:assert/strict";
import test from "node:test";

import { moved, showing, ticksOf, zoomed } from "../sight.js";

test("what is pointed at stays where it is", () => {
  assert.deepEqual(zoomed([0, 10], 10, 2, 5), [2.5, 7.5]);
  assert.deepEqual(zoomed([0, 10], 10, 2, 0), [0, 5]);
  assert.deepEqual(zoomed([2, 6], 10, 2), [3, 5]);
});

test("it never leaves the step, and never gets closer than can be seen", () => {
  assert.deepEqual(zoomed([6, 10], 10, 0.5, 10), [2, 10]);
  assert.deepEqual(zoomed([2, 6], 10, 0.1), [0, 10]);
  const [from, to] = zoomed([5, 5.01], 10, 100);
  assert.ok(Math.abs(to - from - 0.01) < 1e-9);
  assert.deepEqual(moved([2, 4], 10, -5), [0, 2]);
  assert.deepEqual(moved([2, 4], 10, 50), [8, 10]);
});

test("a box is brought into sight, and nothing moves if it is", () => {
  assert.deepEqual(showing([2, 4], 10, { begin: 2.5, end: 3 }), [2, 4]);
  assert.deepEqual(showing([2, 4], 10, { begin: 1, end: 3 }), [1, 3]);
  assert.deepEqual(showing([2, 4], 10, { begin: 4, end: 5 }), [3, 5]);
  assert.deepEqual(showing([2, 4], 10, { begin: 5, end: 9 }), [5, 7]); // it is longer: its begin
});

test("ticks are round, in order, and about as many as there is room for", () => {
  assert.deepEqual(ticksOf(0, 12.3, 700).map(([, text]) => text), ["0", "2", "4", "6", "8", "10", "12"]);
  assert.deepEqual(ticksOf(0.52, 0.58, 240).map(([, text]) => text), ["0.52", "0.54", "0.56", "0.58"]);
  for (const end of [1e-4, 0.7, 9.9, 1234, 5e6]) {
    const count = ticksOf(0, end, 800).length;
    assert.ok(count >= 4 && count <= 11, `${count} ticks up to ${end}`);
  }
});
