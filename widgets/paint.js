// Paints a timeline on a canvas. Colours change seldom: a colour's boxes are drawn one after the other.

import { paintGround, xAt } from "./deck.js";
import { percent } from "./format.js";
import { topOf } from "./lanes.js";
import { KINDS } from "./kinds.js";
import { ticksOf } from "./sight.js";
import { fromTheTop, markOf } from "./step.js";

const FAINT = 0.62; // opacity of the boxes of a rank's second stage
const PLANNED = 0.6; // so that it stands back
const MARKED = 12; // pixels: lower lanes have no room for a number

/**
 * Paints all of a step that is in sight.
 *
 * context: of a canvas in CSS pixels; scene: {step, layout, sight, theme, ratio}, theme: {text, quiet, line,
 * sunken, back, font} as CSS says them, ratio: pixels of the screen in one of CSS.
 */
export function paint(context, scene) {
  paintGround(context, scene);
  paintFloor(context, scene);
  paintAxis(context, scene);
  const boxes = boxesInSight(scene);
  paintBoxes(context, boxes);
  paintMarks(context, boxes.filter(({ marked }) => marked), scene.theme);
  if (scene.isPath) paintPath(context, scene);
  paintLabels(context, scene);
}

/** Where a time lies, in pixels of the canvas, on a whole pixel of the screen. */
export function xOf(scene, seconds) {
  return Math.round(scene.ratio * xAt(scene, seconds)) / scene.ratio;
}

/** The part of a box that is in sight, in pixels: {x, width}; undefined where there is none. */
export function extentOf(scene, box) {
  const { plot } = scene.layout;
  const from = Math.max(plot.x, xOf(scene, box.begin));
  const to = Math.min(plot.x + plot.width, xOf(scene, box.end));
  const least = 1 / scene.ratio;
  if (to < plot.x || from > plot.x + plot.width - least || (to <= plot.x && box.begin < scene.sight[0])) return undefined;
  return { x: from, width: Math.max(least, to - from) };
}

function boxesInSight(scene) {
  const { step, layout, ratio } = scene;
  const boxes = [];
  const add = (box, index, lane, alpha) => {
    const { height } = layout.lanes[lane];
    const extent = height > 0 && extentOf(scene, box);
    if (!extent) return;
    const gap = extent.width > 4 ? 1 / ratio : 0; // so that equal neighbours are two
    boxes.push({
      box,
      style: `${KINDS[box.kind].colour}/${alpha * (box.faint ? FAINT : 1)}`,
      x: extent.x, y: topOf(layout, index, lane), width: extent.width - gap, height,
      marked: lane === "measured" && height >= MARKED,
    });
  };
  step.rows.forEach((row, index) => {
    for (const box of row.planned) add(box, index, "planned", PLANNED);
    for (const box of row.boxes) add(box, index, box.beside ? "beside" : "measured", 1);
  });
  return boxes;
}

function paintFloor(context, { step, layout, theme }) {
  const { y, height } = layout.lanes.measured;
  context.fillStyle = theme.sunken;
  for (let index = 0; index < step.rows.length; index += 1) {
    context.fillRect(layout.plot.x, layout.top + index * layout.row + y, layout.plot.width, height);
  }
}

function paintAxis(context, scene) {
  const { layout, theme, sight: [from, to], step } = scene;
  const [unit, factor] = step.seconds < 1e-3 ? ["µs", 1e6] : step.seconds < 1 ? ["ms", 1e3] : ["s", 1];
  context.textAlign = "center";
  for (const [value, text] of ticksOf(factor * from, factor * to, layout.plot.width)) {
    const x = xOf(scene, value / factor);
    context.fillStyle = theme.line;
    context.fillRect(x, layout.top - 4, 1, layout.axis - layout.top + 8);
    context.fillStyle = theme.quiet;
    context.fillText(text, x, layout.axis + 13);
  }
  context.textAlign = "right";
  context.fillText(unit, layout.width, layout.axis + 13);
}

function paintBoxes(context, boxes) {
  const fromBelow = [...boxes].sort((a, b) => fromTheTop(b.box, a.box));
  for (const style of new Set(fromBelow.map((one) => one.style))) {
    const [colour, alpha] = style.split("/");
    context.fillStyle = colour;
    context.globalAlpha = Number(alpha);
    for (const one of boxes) {
      if (one.style === style) context.fillRect(one.x, one.y, one.width, one.height);
    }
  }
  context.globalAlpha = 1;
}

/** One outline of the critical path; a line where it hops to another rank. */
function paintPath(context, scene) {
  const { step, layout, theme } = scene;
  const { height } = layout.lanes.measured;
  const top = (index) => topOf(layout, index, "measured");
  context.save();
  context.beginPath();
  context.rect(layout.plot.x - 1, layout.top - 6, layout.plot.width + 2, layout.axis - layout.top + 6);
  context.clip();
  context.strokeStyle = theme.text;
  context.lineWidth = height >= MARKED ? 2 : 1;
  step.path.forEach(({ index, box }, i) => {
    const extent = extentOf(scene, box);
    if (extent && height >= MARKED) context.strokeRect(extent.x, top(index), extent.width, height);
    else if (extent) context.strokeRect(extent.x, top(index) + height / 2, extent.width, 0);
    const next = step.path[i + 1];
    if (!next || (next.index === index && next.box.begin - box.end < 0.002 * step.seconds)) return;
    const [from, to] = [xOf(scene, box.end), xOf(scene, next.box.begin)];
    context.beginPath();
    context.moveTo(from, top(index) + height / 2);
    context.lineTo(to, top(next.index) + height / 2);
    context.stroke();
  });
  context.restore();
}

function paintMarks(context, boxes, theme) {
  context.textAlign = "center";
  for (const ink of new Set(Object.values(KINDS).map((kind) => kind.ink))) {
    context.fillStyle = ink ?? theme.quiet;
    for (const { box, x, y, width, height } of boxes) {
      const words = KINDS[box.kind].ink === ink && markOf(box, width);
      if (words) context.fillText(words, x + width / 2, y + height / 2 + 0.5);
    }
  }
}

/** Names of ranks at the left; how idle each is at the right: in words, or as bars where rows are low. */
function paintLabels(context, { step, layout, theme }) {
  const { y, height } = layout.lanes.measured;
  const middle = (index) => layout.top + index * layout.row + y + height / 2 + 0.5;
  const right = layout.plot.x + layout.plot.width + 8;
  context.font = `12px ${theme.font}`;
  context.fillStyle = theme.quiet;
  context.textAlign = "right";
  context.fillText("idle", layout.width, layout.top - 11);
  context.textAlign = "left";
  step.rows.forEach(({ rank }, index) => {
    if (index % layout.every === 0) context.fillText(`rank ${rank}`, 0, middle(index));
  });
  context.textAlign = "right";
  if (layout.every === 1) context.fillStyle = theme.text;
  step.rows.forEach(({ idle }, index) => {
    if (layout.every === 1) context.fillText(percent(idle), layout.width, middle(index));
    else context.fillRect(right, layout.top + index * layout.row + y, idle * (layout.width - right), height);
  });
}
