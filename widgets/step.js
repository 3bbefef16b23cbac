// One step on all ranks, as the timeline reads it. Pure functions over tnt_notebook's step traces.

import { percent, shortTime } from "./format.js";
import { KINDS } from "./kinds.js";

/**
 * A timeline of the card as rows: {seconds, begin, rows: [{rank, idle, boxes, planned}], ...}.
 *
 * A box is {kind, stage, number, begin, end, faint, beside}, times in seconds since the begin of the step;
 * path are the boxes that the step waited for, one after the other: [{index, box}, ...], index that of the row;
 * faint are those of a rank's later stages, beside those that go on while the rank does something else.
 */
export function stepOf({ measured, planned, idle, heading, remarks, path = [] }) {
  const plans = new Map((planned?.rows ?? []).map((row) => [row.rank, boxesOf(row, planned.tick)]));
  const rows = measured.rows.map((row, index) => ({
    rank: row.rank,
    idle: idle[index],
    boxes: boxesOf(row, measured.tick, measured.conversions),
    planned: plans.get(row.rank) ?? [],
  }));
  const every = rows.flatMap(({ boxes, planned: own }) => [...boxes, ...own]);
  return {
    rows,
    seconds: measured.seconds,
    end: every.reduce((latest, { end }) => Math.max(latest, end), measured.seconds),
    heading,
    remarks,
    path: path.map(([index, number]) => ({ index, box: rows[index].boxes[number] })),
    isPlanned: plans.size > 0,
    isBeside: every.some(({ beside }) => beside),
    isFaint: every.some(({ faint }) => faint),
    kinds: Object.keys(KINDS).filter((kind) => every.some((box) => box.kind === kind)),
  };
}

/** A timeline in words, for those who do not see it. */
export function summaryOf(step) {
  const one = ({ rank, idle }) => `rank ${rank} for ${percent(idle)}`;
  const byIdle = [...step.rows].sort((a, b) => a.idle - b.idle);
  const idle = step.rows.length <= 16
    ? step.rows.map(one).join(", ")
    : `the least ${one(byIdle[0])}, the most ${one(byIdle.at(-1))}`;
  return `Timeline of ${step.rows.length} ranks. ${step.heading}. Idle: ${idle}. `
    + "Arrow keys go from box to box, plus, minus and 0 zoom.";
}

/** A box in two lines: what it is, and where and when it was. */
export function wordsOf(box, rank, isPlanned = false) {
  const { detail } = KINDS[box.kind] ?? { detail: "idle" };
  const what = box.what ?? detail.replace("{number}", box.number).replace("{stage}", box.stage);
  const when = `${shortTime(box.begin)} to ${shortTime(box.end)}: ${shortTime(box.end - box.begin)}`;
  return [isPlanned ? `planned: ${what}` : what, `rank ${rank}, ${when}`];
}

/** What is written on a box that is so many pixels wide: as much as fits. */
export function markOf({ kind, number }, width) {
  const { role, words: name } = KINDS[kind];
  const choices = role === "action" ? [`${kind}${number}`, `${number}`] : [name, kind];
  return choices.find((words) => 6.3 * words.length + 3 <= width) ?? "";
}

/** The box of a lane at a time, or the nearest within `reach` seconds; undefined where there is none. */
export function boxAt(boxes, seconds, reach = 0) {
  const away = ({ begin, end }) => Math.max(begin - seconds, seconds - end, 0);
  const near = [...boxes].sort(fromTheTop).filter((box) => away(box) <= reach);
  return near.sort((one, other) => away(one) - away(other))[0];
}

/** Sorts boxes of a lane: those that lie below others are the last. */
export function fromTheTop(one, other) {
  return (KINDS[one.kind].below ?? false) - (KINDS[other.kind].below ?? false);
}

/** The gap between boxes of a lane at a time, as a box of no kind; `end` is that of the step. */
export function gapAt(boxes, seconds, end) {
  const before = boxes.filter((box) => box.end <= seconds).map((box) => box.end);
  const after = boxes.filter((box) => box.begin >= seconds).map((box) => box.begin);
  return { kind: "", begin: Math.max(0, ...before), end: Math.min(end, ...after) };
}

/** What ranks do between two times of a step, the mean over them: ``1.2 ms to 3.4 ms, 2.2 ms: forward 40%, idle 20%``. */
export function rangeOfStep(step, [from, to]) {
  const length = to - from;
  const sums = {};
  let busy = 0;
  for (const { boxes } of step.rows) {
    const inside = boxes.map(({ kind, beside, begin, end }) => ({
      kind, beside, seconds: Math.max(0, Math.min(to, end) - Math.max(from, begin)),
    }));
    for (const { kind, seconds } of inside) sums[kind] = (sums[kind] ?? 0) + seconds / step.rows.length;
    busy += inside.filter(({ beside }) => !beside).reduce((sum, { seconds }) => sum + seconds, 0) / step.rows.length;
  }
  const words = Object.entries(sums).filter(([, seconds]) => seconds > 0.005 * length)
    .map(([kind, seconds]) => `${KINDS[kind].words} ${percent(seconds / length)}`);
  const idle = Math.max(0, 1 - busy / length);
  return `${shortTime(from)} to ${shortTime(to)}, ${shortTime(length)}: ${[...words, `idle ${percent(idle)}`].join(", ")}`;
}

function boxesOf({ kinds, stages, numbers, begins, lengths }, tick, conversions = []) {
  const first = Math.min(...stages.filter((_, i) => isAction(kinds[i])));
  return [...kinds].map((kind, i) => ({
    kind,
    stage: stages[i],
    number: numbers[i],
    begin: begins[i] * tick,
    end: (begins[i] + lengths[i]) * tick,
    faint: isAction(kind) && stages[i] !== first,
    beside: KINDS[kind].role === "beside",
    ...(kind === "V" && conversions[numbers[i]] ? { what: conversions[numbers[i]] } : {}),
  }));
}

function isAction(kind) {
  return KINDS[kind].role === "action";
}
