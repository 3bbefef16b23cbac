import assert from "node:assert/strict";
import test from "node:test";

import {
  busyStretches, entriesOf, lettersIn, nowInWords, rangeInWords, rememberTold, ribbonRows, sumsOf,
} from "../ribbon.js";

const RIBBON = { began: 100, rows: [[0, "ict", [500, 2500, 4500]], [1, "icw", [500, 2500, 4500]]] };

test("what ranks tell is added once, in order of the ranks", () => {
  const ribbon = { began: 100, rows: [] };
  const told = { seq: 1, rows: [[1, "i", [10]]] };
  rememberTold(ribbon, told);
  rememberTold(ribbon, told);
  rememberTold(ribbon, { seq: 2, rows: [[0, "i", [12]], [1, "bc", [20, 30]]] });
  assert.deepEqual(ribbon.rows, [[0, "i", [12]], [1, "ibc", [10, 20, 30]]]);
});

test("a rank starts, and does what it does last until now", () => {
  assert.deepEqual(entriesOf(RIBBON.rows[0], 6), [
    { letter: "s", begin: 0, end: 0.5 }, { letter: "i", begin: 0.5, end: 2.5 },
    { letter: "c", begin: 2.5, end: 4.5 }, { letter: "t", begin: 4.5, end: 6 },
  ]);
  assert.deepEqual(entriesOf([3, "", []], 6), [{ letter: "s", begin: 0, end: 6 }]);
});

test("a range is summed over ranks", () => {
  assert.deepEqual(sumsOf(RIBBON, [3.5, 5.5], 6), { c: 1, t: 0.5, w: 0.5 });
  assert.equal(
    rangeInWords(RIBBON, [3.5, 5.5], 6), "0:04 to 0:06, 2 s: tracing 50%, training 25%, waiting for a rank 25%");
});

test("what ranks do now, together or apart", () => {
  assert.equal(nowInWords({}), "starting");
  assert.equal(nowInWords({ rows: [[0, "i", [1]], [1, "i", [1]]] }), "importing");
  assert.equal(nowInWords({ rows: [[0, "ic", [1, 2]], [1, "i", [1]], [2, "i", [1]]] }), "importing on 2 ranks, tracing on rank 0");
  assert.deepEqual(lettersIn(RIBBON), ["s", "i", "c", "t", "w"]); // what is before they speak, too
});

test("few ranks have a row each, many share one with their pipeline or their neighbours", () => {
  assert.deepEqual(ribbonRows(2, [[0, 1]]).map(({ name }) => name), ["rank 0", "rank 1"]);
  const pipelines = Array.from({ length: 8 }, (_, i) => [i, i + 8, i + 16]);
  assert.deepEqual(ribbonRows(24, pipelines)[1], { name: "pipeline 1", ranks: [1, 9, 17] });
  assert.equal(ribbonRows(64).length, 64);
  const folded = ribbonRows(256);
  assert.equal(folded.length, 64);
  assert.deepEqual(folded[1], { name: "ranks 4–7", ranks: [4, 5, 6, 7] });
});

test("a look tells how busy a rank was before it, the last one after it, too", () => {
  const looks = [{ seconds: 1, busy: "90" }, { seconds: 2, busy: "90" }, { seconds: 3, busy: "20" }];
  assert.deepEqual(busyStretches(looks, 0, { begin: 0, end: 5 }), [[0, 2, 0.95], [2, 3, 0.25], [3, 5, 0.25]]);
  assert.deepEqual(busyStretches(looks, 0, { begin: 1.5, end: 1.8 }), [[1.5, 1.8, 0.95]]);
  assert.deepEqual(busyStretches([], 0, { begin: 0, end: 5 }), [[0, 5, 1]]);
});
