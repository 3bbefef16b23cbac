// Paints the meters below the ribbon: a row for each, over the same time.

import { xAt } from "./deck.js";
import { latest, measured } from "./meters.js";

/** scene: that of the run, with meters. */
export function paintMeters(context, scene) {
  const { layout, theme, meters } = scene;
  const { plot, meter: { top, row, height } } = layout;
  meters.forEach((meter, index) => {
    const bottom = top + index * row + height;
    const y = (number) => bottom - (Math.min(number, meter.top) / meter.top) * (height - 2);
    context.fillStyle = theme.line;
    context.fillRect(plot.x, bottom, plot.width, 1);
    context.save();
    context.beginPath();
    context.rect(plot.x, bottom - height, plot.width, height + 1);
    context.clip();
    context.fillStyle = theme[meter.colour];
    context.strokeStyle = theme[meter.colour];
    context.lineJoin = "round";
    paintLines(context, scene, meter, y, bottom);
    context.restore();
    context.fillStyle = theme.quiet;
    context.textAlign = "left";
    context.font = `12px ${theme.font}`;
    context.fillText(meter.label, 0, bottom - height / 2 + 0.5);
    context.fillStyle = theme.text;
    context.textAlign = "right";
    const words = measured(meter, latest(meter));
    context.font = `${words.length > 7 ? 10 : 11}px ${theme.font}`; // as much as there is room for
    context.fillText(words, layout.width, bottom - height / 2 + 0.5);
  });
}

/** Few ranks: a line for each, over its shadow. Many: the median within what all have. */
function paintLines(context, scene, { lines, isBand }, y, bottom) {
  const path = (points) => points.forEach(([seconds, number], i) => (
    i ? context.lineTo(xAt(scene, seconds), y(number)) : context.moveTo(xAt(scene, seconds), y(number))));
  const fill = (upper, lower, alpha) => {
    context.beginPath();
    path(upper);
    [...lower].reverse().forEach(([seconds, number]) => context.lineTo(xAt(scene, seconds), number === null ? bottom : y(number)));
    context.globalAlpha = alpha;
    context.fill();
    context.globalAlpha = 1;
  };
  if (isBand && lines.length > 2) fill(lines[2].points, lines[0].points, 0.25);
  const shown = isBand ? lines.slice(Math.min(1, lines.length - 1), 2) : lines;
  for (const { points } of shown) {
    fill(points, points.map(([seconds]) => [seconds, null]), isBand ? 0.1 : 0.2 / lines.length);
    context.lineWidth = shown.length > 1 ? 1 : 1.25;
    context.beginPath();
    path(points);
    context.stroke();
  }
}
