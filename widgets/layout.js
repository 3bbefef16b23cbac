// Where things go: sparklines and the bar of progress as plain geometry. Pure functions.

/**
 * An SVG path through the points, scaled into a box.
 *
 * Points whose y is not finite break the line. A single point becomes a short dash, so that it
 * shows; a flat line lies in the middle.
 *
 * points: [[x, y], ...] in order of x; box: {width, height}; range: {x: [lo, hi], y: [lo, hi]}
 */
export function linePath(points, box, range) {
  const x = scale(range.x, [0, box.width]);
  const y = scale(range.y, [box.height - 1, 1]);
  let path = "";
  let pen = false;
  let drawn = 0;
  for (const [px, py] of points) {
    if (!Number.isFinite(py)) {
      pen = false;
      continue;
    }
    path += `${pen ? "L" : "M"}${round(x(px))} ${round(y(py))}`;
    pen = true;
    drawn += 1;
  }
  return drawn === 1 ? `${path}h2` : path;
}

/** The same line closed down to the floor of the box, for filling. */
export function areaPath(points, box, range) {
  const finite = points.filter(([, y]) => Number.isFinite(y));
  if (finite.length < 2) return "";
  const x = scale(range.x, [0, box.width]);
  const [first, last] = [round(x(finite[0][0])), round(x(finite.at(-1)[0]))];
  return `${linePath(finite, box, range)}L${last} ${box.height}L${first} ${box.height}Z`;
}

/** The smallest and largest finite value; [0, 1] where there is none. */
export function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return low <= high ? [low, high] : [0, 1];
}

/** Part of the whole run that is done, 0 to 1; null while the length of an epoch is unknown. */
export function fractionDone({ epoch, epochs, step, steps }) {
  if (epoch === 0) return 0;
  if (!steps) return epochs > 1 ? (epoch - 1) / epochs : null;
  return Math.min(1, (epoch - 1 + Math.min(step, steps) / steps) / epochs);
}

function scale([low, high], [from, to]) {
  if (high === low) return () => (from + to) / 2;
  return (value) => from + ((value - low) / (high - low)) * (to - from);
}

function round(value) {
  return Math.round(value * 100) / 100;
}
