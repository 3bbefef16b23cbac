import assert from "node:assert/strict";
import test from "node:test";

import { boxAt, gapAt, markOf, stepOf, summaryOf, wordsOf } from "../step.js";

const row = (rank, kinds, stages, numbers, begins, lengths) => ({ rank, kinds, stages, numbers, begins, lengths });
const measured = {
  seconds: 0.01, tick: 0.001, ranks: 2, schedule: "1f1b", clock_error: 0,
  rows: [
    row(0, "DFSB", [0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 3, 7], [1, 2, 1, 3]),
    row(1, "RFB", [0, 1, 1], [0, 0, 0], [0, 4, 5], [4, 1, 1]),
  ],
};
const planned = {
  ...measured, tick: 0.002, rows: [row(0, "F", [0], [0], [0], [1]), row(1, "F", [1], [0], [5], [1])],
};
const timeline = { measured, planned, idle: [0.4, 0.8], heading: "Last step 10 ms · idle 60%", remarks: "" };
const step = stepOf(timeline);

test("a step is rows of boxes in seconds, with its plan", () => {
  assert.deepEqual(step.rows[0].boxes[1], {
    kind: "F", stage: 0, number: 0, begin: 0.001, end: 0.003, faint: false, beside: false,
  });
  assert.deepEqual(step.rows[0].boxes.map(({ beside }) => beside), [false, false, true, false]);
  assert.equal(step.rows[1].planned[0].begin, 0.01);
  assert.equal(step.end, 0.012); // of the plan, which may end later
  assert.equal(stepOf({ ...timeline, measured: { ...measured, seconds: 0.02 } }).end, 0.02); // callbacks
  assert.deepEqual(step.kinds, ["F", "B", "D", "R", "S"]);
  assert.deepEqual([step.isPlanned, step.isBeside, step.isFaint], [true, true, false]);
});

test("the boxes of a rank's second stage are faint", () => {
  const two = { ...measured, rows: [row(0, "FDF", [1, 0, 3], [0, 0, 0], [0, 1, 2], [1, 1, 1])] };
  const { rows, isFaint, isPlanned } = stepOf({ ...timeline, measured: two, planned: null });
  assert.deepEqual(rows[0].boxes.map(({ faint }) => faint), [false, false, true]);
  assert.deepEqual([isFaint, isPlanned], [true, false]);
});

test("a conversion says what it does", () => {
  const converting = {
    ...measured, conversions: ["halo exchange for conv, 8 KB sent, with rank 1"],
    rows: [row(0, "CV", [0, 0], [0, 0], [0, 1], [4, 1])],
  };
  const [, box] = stepOf({ ...timeline, measured: converting, planned: null }).rows[0].boxes;
  assert.equal(box.beside, true);
  assert.deepEqual(wordsOf(box, 0), [
    "halo exchange for conv, 8 KB sent, with rank 1", "rank 0, 1 ms to 2 ms: 1 ms",
  ]);
});

test("a summary in words has all of a few ranks, and the ends of many", () => {
  assert.match(summaryOf(step), /^Timeline of 2 ranks\. Last step 10 ms .* Idle: rank 0 for 40%, rank 1 for 80%\./);
  const rows = Array.from({ length: 20 }, (_, rank) => ({ rank, idle: ((rank * 7) % 20) / 20 }));
  assert.match(summaryOf({ ...step, rows }), /Idle: the least rank 0 for 0%, the most rank 17 for 95%\./);
});

test("a box in words", () => {
  const words = (index) => wordsOf(step.rows[0].boxes[index], 0);
  assert.deepEqual(words(0), ["wait for input", "rank 0, 0 µs to 1 ms: 1 ms"]);
  assert.deepEqual(words(1), ["forward of micro-batch 0, stage 0", "rank 0, 1 ms to 3 ms: 2 ms"]);
  assert.equal(words(2)[0], "send to rank 1");
  assert.equal(wordsOf(step.rows[1].boxes[0], 1)[0], "wait for a message from rank 0, for micro-batch 0");
  assert.equal(wordsOf(step.rows[0].boxes[1], 0, true)[0], "planned: forward of micro-batch 0, stage 0");
  assert.deepEqual(wordsOf({ kind: "", begin: 0.003, end: 0.007 }, 3), ["idle", "rank 3, 3 ms to 7 ms: 4 ms"]);
});

test("a box is marked with as much as fits", () => {
  const mark = (kind, number, width) => markOf({ kind, number }, width);
  assert.equal(mark("F", 3, 30), "F3");
  assert.equal(mark("F", 3, 13), "3");
  assert.equal(mark("F", 3, 8), "");
  assert.equal(mark("B", 12, 20), "12");
  assert.equal(mark("O", 0, 90), "optimizer");
  assert.equal(mark("O", 0, 20), "O");
});

test("a box is found by its time, a narrow one near it, and else the gap", () => {
  const boxes = step.rows[0].boxes.filter(({ beside }) => !beside);
  assert.equal(boxAt(boxes, 0.002).kind, "F");
  assert.equal(boxAt(boxes, 0.005), undefined);
  assert.equal(boxAt(boxes, 0.0068, 0.0005).kind, "B");
  assert.equal(boxAt(boxes, 0.004, Infinity).kind, "F");
  const under = { kind: "O", begin: 0, end: 0.01 };
  assert.equal(boxAt([under, ...boxes], 0.002).kind, "F");
  assert.equal(boxAt([under, ...boxes], 0.005), under);
  assert.deepEqual(gapAt(boxes, 0.005, 0.01), { kind: "", begin: 0.003, end: 0.007 });
  assert.deepEqual(gapAt([], 0.005, 0.01), { kind: "", begin: 0, end: 0.01 });
});
