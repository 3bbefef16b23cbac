// The runs of a cell so far, as the browser remembers them: a bounded list of points, one per frame shown.

import { label, number } from "./format.js";

export const HISTORY_LIMIT = 500;

/**
 * Adds a frame to the history, in place, and thins the list when it is full.
 *
 * The list is the model's own `history` trait. It grows in place on both sides: a new value of the
 * trait would be sent over the wire with each frame, and all of it is only needed by a browser that
 * comes back.
 */
export function remember(history, frame) {
  const last = history.at(-1);
  if (last && (frame.start < last.start || (frame.start === last.start && frame.seq <= last.seq))) return;
  if (!last && frame.seq <= 0) return;
  const { start, seq, elapsed, epoch, logs, busy } = frame;
  history.push({ start, seq, elapsed, epoch, logs, busy });
  if (history.length > HISTORY_LIMIT) thin(history);
}

/**
 * Loss and metrics over the run: [{name, validation: [[seconds, value], ...], points: [...]}, ...], in seconds
 * since `began`. A value that is not finite is NaN, and breaks the line; so does the begin of another run.
 */
export function curvesOf(history, rows, began) {
  const curves = new Map();
  const curveOf = (name) => {
    if (!curves.has(name)) curves.set(name, { name, points: [], validation: [] });
    return curves.get(name);
  };
  let start;
  for (const point of history) {
    const isNew = start !== undefined && point.start !== start;
    start = point.start;
    for (const [name, value] of Object.entries(point.logs)) {
      const { points } = curveOf(name);
      if (isNew && points.length) points.push([secondsOf(point, began), NaN]);
      points.push([secondsOf(point, began), value ?? NaN]);
    }
  }
  for (const { epoch, ...logs } of rows) {
    const seconds = epochEnd(history, epoch, began);
    for (const [name, value] of Object.entries(logs)) {
      if (!name.startsWith("val_")) continue;
      curveOf(name.slice("val_".length)).validation.push([seconds, value ?? NaN]);
    }
  }
  return [...curves.values()].filter(({ points, validation }) => points.length || validation.length);
}

/** What curves say at a time, in lines: ``loss 0.31 · accuracy 0.9``, and what the last validation before it said. */
export function valuesInWords(curves, seconds) {
  const line = (which) => curves
    .map((curve) => [label(curve.name), curve[which].findLast(([time]) => time <= seconds)])
    .filter(([, point]) => point)
    .map(([name, [, value]]) => `${name} ${number(value)}`)
    .join(" · ");
  const validation = line("validation");
  return [line("points"), validation && `validation: ${validation}`].filter(Boolean);
}

/** When the epochs of the latest run ended, in seconds since `began`: [[epoch, seconds], ...] */
export function epochEnds(history, rows, began) {
  return rows.map(({ epoch }) => [epoch, epochEnd(history, epoch, began)]);
}

/** When it was seen how busy ranks are: [{seconds, busy}, ...], not more than `most`. */
export function looksOf(history, began, most = 200) {
  const looks = history.filter(({ busy }) => busy).map((point) => ({ seconds: secondsOf(point, began), busy: point.busy }));
  const every = Math.ceil(looks.length / most);
  return looks.filter((_, i) => i % every === 0);
}

/** A point of the latest run is the last of an epoch if the next one is of a later epoch. */
function epochEnd(history, epoch, began) {
  const { start } = history.at(-1);
  const after = history.find((point) => point.start === start && point.epoch > epoch);
  const last = history.findLast((point) => point.start === start && point.epoch <= epoch);
  return secondsOf(last ?? after ?? history.at(-1), began);
}

function secondsOf({ start, elapsed }, began) {
  return start + elapsed - began;
}

// Evenly over time, as in telemetry/sampling.py: of every other point, after many times, the beginning
// would be lost.
function thin(items) {
  const begin = items[0].start + items[0].elapsed;
  const at = items.map(({ start, elapsed }) => start + elapsed - begin);
  const length = at.at(-1);
  const stretch = length > 0 ? 2 ** Math.ceil(Math.log2(length / (HISTORY_LIMIT / 2))) : 1;
  const numbers = at.map((seconds) => Math.floor(seconds / stretch));
  const last = items.length - 1;
  const kept = items.filter((_, i) => i === 0 || i === last || numbers[i] !== numbers[i + 1]);
  items.splice(0, items.length, ...kept);
}
