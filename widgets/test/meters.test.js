import assert from "node:assert/strict";
import test from "node:test";

import { latest, measured, meterInWords, metersInWords, metersOf, rememberMeters } from "../meters.js";

const POINTS = [[101, { c: [90, 50], m: [500, 800], h: [10, null] }], [102, { c: [80, 60], m: [2000, 900], h: [20, null] }]];

test("points of a second take the place of those that are known", () => {
  const points = [[101, { c: [90] }], [103, { c: [70] }]];
  rememberMeters(points, [[102, { c: [80] }], [103, { c: [71] }]]);
  assert.deepEqual(points, [[101, { c: [90] }], [102, { c: [80] }], [103, { c: [71] }]]);
});

test("points are bounded, and the last is there", () => {
  const points = [];
  for (let second = 0; second < 3000; second += 1) rememberMeters(points, [[second, { c: [1] }]]);
  assert.ok(points.length > 200 && points.length <= 600);
  assert.deepEqual([points[0][0], points.at(-1)[0]], [0, 2999]);
});

test("each meter that there is has a line for each rank that measures it", () => {
  const meters = metersOf(POINTS, 100, 2);
  assert.deepEqual(meters.map(({ name }) => name), ["cpu", "memory", "host_memory"]);
  assert.deepEqual(meters[0].lines[1], { name: "rank 1", points: [[1, 50], [2, 60]] });
  assert.deepEqual(meters.map(({ lines }) => lines.length), [2, 2, 1]);
  assert.deepEqual(meters.map(({ top }) => top), [100, 2000, 100]);
  assert.equal(metersInWords(meters), "CPU 70%, memory 2.0 GB, host mem. 20%");
  assert.equal(meterInWords(meters[0], 1.5)[0], "CPU: rank 0 90% · rank 1 50%");
  assert.deepEqual(meterInWords(meters[2], 9), ["host mem.: 20%", "0:09"]);
  assert.equal(metersOf([[101, { n: [40] }]], 100, 1).length, 0); // hardly anything
  assert.equal(metersOf([[101, { n: [4000] }]], 100, 1).length, 1);
});

test("of many ranks the least, the median and the most", () => {
  const [cpu] = metersOf([[101, { c: [10, 50, 90] }]], 100, 64);
  assert.equal(latest(cpu), 50);
  assert.equal(meterInWords(cpu, 1)[0], "CPU: least 10% · median 50% · most 90%");
});

test("numbers have units", () => {
  const said = [["%", 96.6], ["MiB", 812], ["MiB", 1240], ["MiB", 64512], ["kB/s", 340], ["W", 85.2]];
  assert.deepEqual(
    said.map(([unit, number]) => measured({ unit }, number)), ["97%", "812 MB", "1.2 GB", "63 GB", "340 kB/s", "85 W"]);
});
