import assert from "node:assert/strict";
import test from "node:test";

import { HISTORY_LIMIT, curve, epochCurve, remember, sinceMeasured } from "../history.js";

const frame = (seq, extra = {}) => ({ start: 7, seq, elapsed: seq / 5, logs: {}, rates: [0], eta: 1, ...extra });

test("a frame is remembered once, without what no curve needs", () => {
  const history = [];
  for (const seq of [0, 1, 1, 2, 1]) remember(history, frame(seq));
  assert.deepEqual(history.map(({ seq }) => seq), [1, 2]);
  assert.deepEqual(Object.keys(history[0]), ["start", "seq", "elapsed", "logs", "rates"]);
});

test("another run begins another history", () => {
  const history = [];
  for (const seq of [1, 2]) remember(history, frame(seq));
  remember(history, frame(1, { start: 8 }));
  assert.deepEqual(history.map(({ start, seq }) => [start, seq]), [[8, 1]]);
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

test("a curve has gaps for null and nothing for what is missing", () => {
  const history = [frame(5, { logs: { loss: 1 } }), frame(10, { logs: { loss: null } }), frame(15)];
  assert.deepEqual(curve(history, (point) => point.logs.loss), [[1, 1], [2, NaN]]);
});

test("rates begin where they are known", () => {
  const history = [frame(1), frame(2, { rates: [3] }), frame(3)];
  assert.deepEqual(sinceMeasured(history).map(({ seq }) => seq), [2, 3]);
  assert.deepEqual(sinceMeasured([frame(1)]), []);
});

test("epochs lie on the time axis", () => {
  const history = [frame(5), frame(25)]; // 1 s to 5 s
  const rows = [{ epoch: 1, val_loss: 3 }, { epoch: 2, val_loss: null }];
  const now = { epoch: 2, step: 10, steps: 10 };
  assert.deepEqual(epochCurve(rows, "val_loss", now, history), [[3, 3], [5, NaN]]);
  assert.deepEqual(epochCurve(rows, "val_auc", now, history), []);
});
