// Which part of a step is in sight: [from, to] in seconds of [0, end]. Pure functions.

export const CLOSER = 1.5; // with a key or a button
const LEAST = 1e-3; // of the whole: no closer than this

/** Closer by a factor above 1, farther by one below; what lies at `at` stays where it is. */
export function zoomed([from, to], end, factor, at = (from + to) / 2) {
  const length = Math.min(end, Math.max(LEAST * end, (to - from) / factor));
  const share = (at - from) / (to - from);
  return within(at - share * length, length, end);
}

/** Moved by so many seconds, as far as there is something to see. */
export function moved([from, to], end, by) {
  return within(from + by, to - from, end);
}

/** Moved as little as needed for a box to be in sight, or as much of it as there is room for. */
export function showing([from, to], end, box) {
  if (box.begin < from) return moved([from, to], end, box.begin - from);
  if (box.end > to) return moved([from, to], end, Math.min(box.end - to, box.begin - from));
  return [from, to];
}

/** Round numbers for an axis: about one for each `room` pixels of `width`. [[value, text], ...] */
export function ticksOf(from, to, width, room = 80) {
  const wish = ((to - from) * room) / width;
  const decade = 10 ** Math.floor(Math.log10(wish));
  const step = decade * [1, 2, 5, 10].find((factor) => factor * decade >= wish * (1 - 1e-9));
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + 1e-9 * step; i += 1) {
    ticks.push([i * step, (i * step).toFixed(digits)]);
  }
  return ticks;
}

function within(from, length, end) {
  const begin = Math.max(0, Math.min(from, end - length));
  return [begin, begin + length];
}
