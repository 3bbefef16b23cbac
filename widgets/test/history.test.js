import assert from "node:assert/strict";
import test from "node:test";

import { HISTORY_LIMIT, curvesOf, epochEnds, looksOf, remember, valuesInWords } from "../history.js";

const frame = (seq, extra = {}) => ({
  start: 7, seq, elapsed: seq / 5, epoch: 1, logs: {}, busy: "", eta: 1, ...extra,
});

test("a frame is remembered once, without what no curve needs", () => {
  const history = [];
  for (const seq of [0, 1, 1, 2, 1]) remember(history, frame(seq));
  assert.deepEqual(history.map(({ seq }) => seq), [1, 2]);
  assert.deepEqual(Object.keys(history[0]), ["start", "seq", "elapsed", "epoch", "logs", "busy"]);
});

test("another run of the cell goes on behind the one before, which is over", () => {
  const history = [];
  for (const seq of [1, 2]) remember(history, frame(seq));
  remember(history, frame(1, { start: 8 }));
  remember(history, frame(3));
  assert.deepEqual(history.map(({ start, seq }) => [start, seq]), [[7, 1], [7, 2], [8, 1]]);
});

test("a long run is thinned in place and keeps its first and last frames", () => {
  const history = [];
  for (let seq = 1; seq <= 10000; seq += 1) remember(history, frame(seq));
  assert.ok(history.length <= HISTORY_LIMIT && history.length > HISTORY_LIMIT / 5);
  assert.equal(history[0].seq, 1);
  assert.equal(history.at(-1).seq, 10000);
  const gaps = history.slice(1).map(({ seq }, i) => seq - history[i].seq);
  assert.ok(Math.max(...gaps) <= 4 * 10000 / (HISTORY_LIMIT / 2)); // its beginning is there, too
});

test("curves lie on the time of the cell, with gaps for null and between runs", () => {
  const history = [
    frame(5, { logs: { loss: 1 } }), frame(10, { logs: { loss: null } }),
    frame(5, { start: 17, logs: { loss: 3 } }),
  ];
  const [{ name, points, validation }] = curvesOf(history, [], 4);
  assert.equal(name, "loss");
  assert.deepEqual(points, [[4, 1], [5, NaN], [14, NaN], [14, 3]]);
  assert.deepEqual(validation, []);
});

test("an epoch ends with its last frame, and validation lies there", () => {
  const history = [frame(5), frame(10), frame(15, { epoch: 2 }), frame(25, { epoch: 2 })];
  const rows = [{ epoch: 1, loss: 2, val_loss: 3 }, { epoch: 2, loss: 1, val_loss: null }];
  assert.deepEqual(epochEnds(history, rows, 7), [[1, 2], [2, 5]]);
  assert.deepEqual(curvesOf(history, rows, 7), [{ name: "loss", points: [], validation: [[2, 3], [5, NaN]] }]);
});

test("a time says the latest values, and those of the last validation", () => {
  const curves = [
    { name: "loss", points: [[1, 0.5], [2, 0.25]], validation: [[1.5, 0.75]] },
    { name: "top_5", points: [[2, 0.9]], validation: [] },
  ];
  assert.deepEqual(valuesInWords(curves, 0.5), []);
  assert.deepEqual(valuesInWords(curves, 1), ["loss 0.5000"]);
  assert.deepEqual(valuesInWords(curves, 2.5), ["loss 0.2500 · top 5 0.9000", "validation: loss 0.7500"]);
});

test("of very many looks some are left", () => {
  const history = Array.from({ length: 400 }, (_, i) => frame(i + 1, { busy: i % 2 ? "95" : "" }));
  assert.equal(looksOf(history, 7).length, 200);
  assert.equal(looksOf(history, 7, 50).length, 50);
  assert.equal(looksOf(history, 7)[0].busy, "95");
});
