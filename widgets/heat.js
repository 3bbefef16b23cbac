// A heat map as plain geometry: ranks down, time across. Pure functions.

const HEAT_HEIGHT = 192; // pixels
const HEAT_ROWS = 256; // more, and ranks share a row
const HEAT_LEAST_SPAN = 0.2; // of the rates: less is noise, and shall look like it
const SAMPLES = 2000; // of the rates, to find their span

/** Stops of cividis (Nuñez, Anderton, Renslow 2018), which reads alike with and without colour vision. */
const CIVIDIS = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120],
  [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
];

/** How many ranks share a row, how many rows that makes, and how high one is in pixels. */
export function heatRows(ranks) {
  const fold = Math.ceil(ranks / HEAT_ROWS);
  const rows = Math.ceil(ranks / fold);
  return { fold, rows, height: Math.max(1, Math.min(8, Math.floor(HEAT_HEIGHT / rows))) };
}

/**
 * Which point of a history each of some columns shows, columns being equally long in time.
 *
 * A rate is that of the time before its point.
 */
export function heatColumns(history, columns) {
  const [start, end] = [history[0].elapsed, history.at(-1).elapsed];
  let point = 0;
  return Array.from({ length: columns }, (_, column) => {
    const until = start + ((column + 1) / columns) * (end - start);
    while (point < history.length - 1 && history[point].elapsed < until - 1e-9) point += 1;
    return point;
  });
}

/** From which rate to which the colours go: without the outer 5 % at both ends. */
export function heatSpan(history) {
  const all = history.length * history[0].rates.length;
  const stride = Math.max(1, Math.floor(all / SAMPLES));
  const seen = [];
  for (let index = 0; index < all; index += stride) {
    seen.push(history[index % history.length].rates[Math.floor(index / history.length)]);
  }
  seen.sort((a, b) => a - b);
  const high = seen[Math.floor(0.95 * (seen.length - 1))];
  return [Math.min(seen[Math.floor(0.05 * (seen.length - 1))], (1 - HEAT_LEAST_SPAN) * high), high];
}

/** The rate of a row: that of the slowest of its ranks, which the others wait for. */
export function rateOfRow(rates, row, fold) {
  return fold === 1 ? rates[row] : Math.min(...rates.slice(row * fold, (row + 1) * fold));
}

/** The colour of a value from 0 to 1: [red, green, blue]. */
export function cividis(value) {
  const at = Math.min(1, Math.max(0, value || 0)) * (CIVIDIS.length - 1);
  const below = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return CIVIDIS[below].map((c, i) => Math.round(c + (at - below) * (CIVIDIS[below + 1][i] - c)));
}

/** The pixels of a heat map, a row of ranks after the other: RGBA, a byte each. */
export function heatPixels(history, columns, { fold, rows }, [low, high]) {
  const pixels = new Uint8ClampedArray(4 * rows * columns.length);
  const scale = Array.from({ length: 256 }, (_, i) => cividis(i / 255));
  for (let row = 0; row < rows; row += 1) {
    const colours = history.map(({ rates }) => {
      const value = (rateOfRow(rates, row, fold) - low) / (high - low || 1);
      return scale[Math.round(255 * Math.min(1, Math.max(0, value || 0)))];
    });
    columns.forEach((point, column) => {
      const at = 4 * (row * columns.length + column);
      pixels.set(colours[point], at);
      pixels[at + 3] = 255;
    });
  }
  return pixels;
}
