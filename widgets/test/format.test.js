import assert from "node:assert/strict";
import test from "node:test";

import { clock, count, label, number, rate } from "../format.js";

test("numbers have four significant digits", () => {
  const cases = [
    [0.43214, "0.4321"], [12.3456, "12.35"], [987.65, "987.6"], [12345.6, "12346"], [1, "1.000"],
    [-0.5, "-0.5000"], [0, "0"], [1.234e-7, "1.23e-7"], [1.5e9, "1.50e9"], [0.00123, "0.001230"],
  ];
  for (const [value, text] of cases) assert.equal(number(value), text);
});

test("what is not a number says so, what is not there is a dash", () => {
  assert.equal(number(null), "NaN");
  assert.equal(number(Infinity), "NaN");
  assert.equal(number(undefined), "–");
  assert.equal(rate(undefined), "–");
});

test("rates and counts separate thousands", () => {
  assert.equal(rate(3.21), "3.2");
  assert.equal(rate(0), "0");
  assert.equal(rate(48.4), "48");
  assert.equal(rate(12345.6), "12,346");
  assert.equal(count(1234567), "1,234,567");
  assert.equal(count(999), "999");
});

test("times are clocks", () => {
  const cases = [
    [0, "0:00"], [7.4, "0:07"], [59.6, "1:00"], [754, "12:34"], [3723, "1:02:03"],
    [183845, "2 d 3:04:05"], [-1, "0:00"],
  ];
  for (const [seconds, text] of cases) assert.equal(clock(seconds), text);
});

test("names are for people", () => {
  assert.equal(label("top_5_accuracy"), "top 5 accuracy");
});
