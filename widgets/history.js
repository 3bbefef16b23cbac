// The run so far, as the browser remembers it: a bounded list of points, one per frame shown.

export const HISTORY_LIMIT = 500;

/**
 * Adds a frame to the history, in place, and thins the list when it is full.
 *
 * The list is the model's own `history` trait. It grows in place on both sides: a new value of the
 * trait would be sent over the wire with each frame, and all of it is only needed by a browser that
 * comes back.
 */
export function remember(history, frame) {
  if (history.at(-1)?.start !== frame.start) history.length = 0; // another run of the same cell
  if (frame.seq <= (history.at(-1)?.seq ?? 0)) return;
  const { start, seq, elapsed, logs, rates } = frame;
  history.push({ start, seq, elapsed, logs, rates });
  if (history.length > HISTORY_LIMIT) thin(history);
}

/** A curve of the history: [[seconds, value], ...]; null values become NaN, missing ones are left out. */
export function curve(history, pick) {
  return history
    .map((point) => [point.elapsed, pick(point)])
    .filter(([, value]) => value !== undefined)
    .map(([seconds, value]) => [seconds, value ?? NaN]);
}

/** The history from the first point on at which a rate was known: before it, ranks trace and load. */
export function sinceMeasured(history) {
  const first = history.findIndex(({ rates }) => rates.some((rate) => rate > 0));
  return first < 0 ? [] : history.slice(first);
}

/** Values of finished epochs on the time axis of the history, epochs taken as equally long. */
export function epochCurve(rows, name, frame, history) {
  if (history.length === 0) return [];
  const [start, now] = [history[0].elapsed, history.at(-1).elapsed];
  const done = frame.epoch - 1 + (frame.steps ? frame.step / frame.steps : 1);
  return rows
    .filter((row) => row[name] !== undefined)
    .map((row) => [start + Math.min(1, row.epoch / done) * (now - start), row[name] ?? NaN]);
}

// Evenly over time, as in telemetry/sampling.py: of every other point, after many times, the beginning
// would be lost.
function thin(items) {
  const begin = items[0].elapsed;
  const length = items.at(-1).elapsed - begin;
  const stretch = length > 0 ? 2 ** Math.ceil(Math.log2(length / (HISTORY_LIMIT / 2))) : 1;
  const numbers = items.map(({ elapsed }) => Math.floor((elapsed - begin) / stretch));
  const last = items.length - 1;
  const kept = items.filter((_, i) => i === 0 || i === last || numbers[i] !== numbers[i + 1]);
  items.splice(0, items.length, ...kept);
}
