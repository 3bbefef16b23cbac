// What ranks use of their machines over a run. Pure functions over `ribbon.meters`:
// [[Unix time, {c: [97, 98]}], ...], a number for each of few ranks; of more ranks the least, the median, the most.

import { clock } from "./format.js";
import METERS from "../tnt_notebook/telemetry/meters.json" with { type: "json" };

const MOST_LINES = 8; // as in tnt_notebook/telemetry/curves.py
const MOST_POINTS = 600;
const UNITS = { MiB: ["MB", "GB", "TB", 1024], "kB/s": ["kB/s", "MB/s", "GB/s", 1000] };

/** Adds points, in place; those of a second that is known take its place. */
export function rememberMeters(points, told) {
  const known = new Map([...points, ...told]);
  let all = [...known].sort((a, b) => a[0] - b[0]);
  for (let every = 2; all.length > MOST_POINTS; every *= 2) {
    const last = all.length - 1;
    all = all.filter(([second], i) => i === last || second % every === 0);
  }
  points.splice(0, points.length, ...all);
}

/**
 * The meters that there are: [{label, unit, colour, top, lines: [{name, points: [[seconds, number], ...]}]}, ...],
 * in seconds since `began`; of few ranks a line for each that has one, else the least, the median and the most.
 */
export function metersOf(points, began, ranks) {
  const names = ranks > MOST_LINES ? ["least", "median", "most"] : Array.from({ length: ranks }, (_, rank) => `rank ${rank}`);
  return METERS.map((meter) => {
    const lines = names.map((name, index) => ({
      name,
      points: points.filter(([, of]) => Number.isFinite(of[meter.letter]?.[index]))
        .map(([second, of]) => [Math.max(0, second - began), of[meter.letter][index]]),
    })).filter((line) => line.points.length);
    const highest = lines.flatMap((line) => line.points).reduce((most, [, number]) => Math.max(most, number), 1);
    return { ...meter, lines, isBand: ranks > MOST_LINES, highest, top: meter.top || highest };
  }).filter(({ lines, highest, least = 0 }) => lines.length && highest >= least);
}

/** A number with its unit, short: 97%, 812 MB, 1.2 GB, 340 kB/s, 85 W. */
export function measured({ unit }, number) {
  if (!UNITS[unit]) return unit === "%" ? `${Math.round(number)}%` : `${Math.round(number)} ${unit}`;
  const factor = UNITS[unit].at(-1);
  let [size, power] = [number, 0];
  while (size >= 999.5 && power < 2) [size, power] = [size / factor, power + 1];
  return `${size < 9.95 && power ? size.toFixed(1) : Math.round(size)} ${UNITS[unit][power]}`;
}

/** What a meter says now: the mean of ranks, or the most. */
export function latest(meter) {
  const last = (line) => line.points.at(-1)[1];
  if (meter.isBand) return last(meter.lines[meter.said === "most" ? meter.lines.length - 1 : Math.floor(meter.lines.length / 2)]);
  const numbers = meter.lines.map(last);
  return meter.said === "most" ? Math.max(...numbers) : numbers.reduce((sum, one) => sum + one, 0) / numbers.length;
}

/** What it said at a time, in two lines. */
export function meterInWords(meter, seconds) {
  const said = meter.lines
    .map(({ name, points }) => [name, points.findLast(([time]) => time <= seconds) ?? points[0]])
    .map(([name, [, number]]) => (meter.lines.length > 1 || name !== "rank 0" ? `${name} ${measured(meter, number)}` : measured(meter, number)));
  return [`${meter.label}: ${said.join(" · ")}`, clock(seconds)];
}

/** ``CPU 97%, memory 812 MB``. */
export function metersInWords(meters) {
  return meters.map((meter) => `${meter.label} ${measured(meter, latest(meter))}`).join(", ");
}
