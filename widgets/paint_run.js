// Paints the upper deck: loss and metrics, and below them a row for each rank, over the same time.

import { DOING } from "./activities.js";
import { paintGround, xAt } from "./deck.js";
import { clock } from "./format.js";
import { AXIS, LABEL_HEIGHT, RIGHT } from "./lanes.js";
import { paintMeters } from "./paint_meters.js";
import { busyStretches, entriesOf } from "./ribbon.js";
import { ticksOf } from "./sight.js";

const CURVES = 92; // pixels
const GAP = 14;
/** Heights in pixels of a row and of the gap below it, by how many rows there are at most. */
const ROWS = [
  { rows: 4, height: 14, gap: 4 }, { rows: 8, height: 12, gap: 3 }, { rows: 16, height: 9, gap: 2 },
  { rows: 32, height: 5, gap: 1 }, { rows: Infinity, height: 3, gap: 0 },
];
const METER = { height: 20, gap: 6, narrow: 12, least: 520 }; // pixels; of a width below `least` they are lower
const COLOURS = ["text", "orange", "green", "pink", "sky"];

/** Where things lie in a canvas of a width, in pixels; meters: their names, from the top. */
export function runLayout(rows, width, hasCurves, meters = []) {
  const { height, gap } = ROWS.find((one) => rows.length <= one.rows);
  const names = [...rows.map(({ name }) => name), ...meters];
  const left = Math.max(12 + 6.4 * Math.max(...names.map((name) => name.length), 6), 54);
  const top = hasCurves ? CURVES + GAP : 6;
  const row = height + gap;
  const below = top + row * rows.length - gap + 4;
  const lane = width < METER.least ? METER.narrow : METER.height;
  const meter = { top: below + METER.gap, row: lane + METER.gap, height: lane };
  const axis = below + (meters.length ? METER.gap + meters.length * meter.row : 0);
  return {
    plot: { x: left, width: Math.max(1, width - left - RIGHT) }, curves: hasCurves ? CURVES : 0,
    top, row, meter, below, lane: height, every: Math.ceil(LABEL_HEIGHT / row), axis, height: axis + AXIS, width,
  };
}

/** The colour of a metric, by its place among them, as the theme calls it. */
export function colourOf(index) {
  return COLOURS[index % COLOURS.length];
}

/**
 * Paints all of a run that is in sight.
 *
 * scene: {ribbon, rows, curves, meters, looks, epochs, end, layout, sight, theme, ratio, isLog}.
 */
export function paintRun(context, scene) {
  paintGround(context, scene);
  paintTime(context, scene);
  if (scene.layout.curves) paintCurves(context, scene);
  paintRows(context, scene);
  paintNames(context, scene);
  paintMeters(context, scene);
}

function paintTime(context, scene) {
  const { layout, theme, sight: [from, to], epochs } = scene;
  const { plot } = layout;
  context.textAlign = "center";
  const isLong = to - from >= 20;
  for (const [value, text] of timeTicks(from, to, plot.width)) {
    const x = Math.round(xAt(scene, value));
    context.fillStyle = theme.line;
    context.fillRect(x, 0, 1, layout.axis + 4);
    context.fillStyle = theme.quiet;
    context.fillText(isLong ? clock(value) : text, x, layout.axis + 13);
  }
  if (!isLong) {
    context.textAlign = "right";
    context.fillText("s", layout.width, layout.axis + 13);
  }
  context.fillStyle = theme.text;
  for (const [, seconds] of epochs) {
    if (seconds >= from && seconds <= to) context.fillRect(Math.round(xAt(scene, seconds)), layout.axis - 3, 1, 7);
  }
}

/** Ticks at whole seconds, minutes and hours. */
function timeTicks(from, to, width) {
  if (to - from < 20) return ticksOf(from, to, width);
  const wish = ((to - from) * 80) / width;
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200];
  const step = steps.find((one) => one >= wish) ?? 86400 * Math.ceil(wish / 86400);
  const ticks = [];
  for (let value = Math.ceil(from / step) * step; value <= to; value += step) ticks.push([value, ""]);
  return ticks;
}

function paintCurves(context, scene) {
  const { layout, theme, curves, isLog } = scene;
  const { plot } = layout;
  context.save();
  context.beginPath();
  context.rect(plot.x, 0, plot.width, layout.curves);
  context.clip();
  const axes = axesOf(curves, isLog);
  curves.forEach((curve, index) => {
    const { range } = axes[axisOf(curve, curves)] ?? { range: () => NaN };
    const y = (value) => layout.curves - 5 - range(value) * (layout.curves - 12);
    context.strokeStyle = theme[colourOf(index)];
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    line(context, scene, curve.points, y, []);
    line(context, scene, curve.validation, y, [4, 3]);
    context.fillStyle = theme[colourOf(index)];
    for (const [seconds, value] of curve.validation) {
      if (Number.isFinite(value)) context.fillRect(xAt(scene, seconds) - 2, y(value) - 2, 4, 4);
    }
  });
  context.restore();
  context.fillStyle = theme.quiet;
  for (const side of ["left", "right"]) {
    const axis = axes[side];
    if (!axis) continue;
    context.textAlign = side === "left" ? "right" : "left";
    const x = side === "left" ? plot.x - 6 : plot.x + plot.width + 6;
    context.fillText(atAxis(axis.high), x, 8);
    context.fillText(atAxis(axis.low), x, layout.curves - 6);
  }
}

/** As much as there is room for. */
function atAxis(value) {
  const short = Number(value.toPrecision(3));
  return Math.abs(short) >= 1e-4 && Math.abs(short) < 1e5 ? String(short) : short.toExponential(1).replace("e+", "e");
}

function line(context, scene, points, y, dash) {
  context.setLineDash(dash);
  context.beginPath();
  let pen = false;
  for (const [seconds, value] of points) {
    if (!Number.isFinite(value)) {
      pen = false;
      continue;
    }
    if (pen) context.lineTo(xAt(scene, seconds), y(value));
    else context.moveTo(xAt(scene, seconds), y(value));
    pen = true;
  }
  context.stroke();
  context.setLineDash([]);
}

/** Losses have the left axis, metrics the right one: {left: {low, high, range}, right: ...}. */
function axesOf(curves, isLog) {
  const axes = {};
  for (const side of ["left", "right"]) {
    const values = curves.filter((curve) => axisOf(curve, curves) === side)
      .flatMap(({ points, validation }) => [...points, ...validation])
      .map(([, value]) => value)
      .filter((value) => Number.isFinite(value) && (!isLog || value > 0));
    if (!values.length) continue;
    const low = values.reduce((a, b) => Math.min(a, b));
    const high = values.reduce((a, b) => Math.max(a, b));
    const scale = isLog ? Math.log : (value) => value;
    const length = scale(high) - scale(low);
    axes[side] = { low, high, range: (value) => (length > 0 ? (scale(value) - scale(low)) / length : 0.5) };
  }
  return axes;
}

function axisOf({ name }, curves) {
  const hasLoss = curves.some((curve) => curve.name.includes("loss"));
  return name.includes("loss") || !hasLoss ? "left" : "right";
}

function paintRows(context, scene) {
  const { ribbon, rows, layout, sight: [from, to], end, looks } = scene;
  const { plot } = layout;
  const own = new Map(ribbon.rows.map((row) => [row[0], row]));
  const boxes = new Map(); // by style: [x, y, width, height] one after the other
  const add = (style, begin, until, y, height) => {
    const x = Math.max(plot.x, xAt(scene, begin));
    const right = Math.min(plot.x + plot.width, xAt(scene, until));
    if (right <= plot.x || x >= plot.x + plot.width) return;
    if (!boxes.has(style)) boxes.set(style, []);
    boxes.get(style).push(x, y, Math.max(1 / scene.ratio, right - x), height);
  };
  rows.forEach(({ ranks }, index) => {
    const y = layout.top + index * layout.row;
    for (const rank of ranks) {
      for (const { letter, begin, end: until } of entriesOf(own.get(rank) ?? [rank, "", []], end)) {
        if (until < from || begin > to) continue;
        if (DOING[letter].line) add(`${letter}/1`, begin, until, y + layout.lane / 2 - 1, 2);
        else if (letter !== "t") add(`${letter}/1`, begin, until, y, layout.lane);
        else {
          for (const [since, upTo, busy] of busyStretches(looks, rank, { begin, end: until })) {
            add(`t/${(0.3 + 0.7 * busy).toFixed(2)}`, since, upTo, y, layout.lane);
          }
        }
      }
    }
  });
  // What many ranks do most of the time first: where they share a row, the others are seen over it.
  const styles = [...boxes.keys()].sort((a, b) => (a[0] !== "t") - (b[0] !== "t"));
  for (const style of styles) {
    const [letter, alpha] = style.split("/");
    context.fillStyle = DOING[letter].colour;
    context.globalAlpha = Number(alpha);
    const four = boxes.get(style);
    for (let i = 0; i < four.length; i += 4) context.fillRect(four[i], four[i + 1], four[i + 2], four[i + 3]);
  }
  context.globalAlpha = 1;
}

function paintNames(context, { rows, layout, theme }) {
  context.font = `12px ${theme.font}`;
  context.fillStyle = theme.quiet;
  context.textAlign = "left";
  rows.forEach(({ name }, index) => {
    if (index % layout.every === 0) context.fillText(name, 0, layout.top + index * layout.row + layout.lane / 2 + 0.5);
  });
}
