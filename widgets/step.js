// One step on all ranks, as the timeline reads it. Pure functions over tnt_notebook's step traces.

import { percent, shortTime } from "./format.js";

const BLACK = "#000000";
const WHITE = "#ffffff";

/**
 * What a box is, by its letter: its name, its colour (Okabe and Ito's) and that of words on it.
 *
 * The letters are those of tnt_notebook/telemetry/step_trace.py; they are drawn too, so that nobody has to
 * tell the colours apart.
 */
export const KINDS = {
  F: { name: "forward", colour: "#0072b2", ink: WHITE },
  B: { name: "backward", colour: "#d55e00", ink: WHITE },
  I: { name: "input gradient", colour: "#e69f00", ink: BLACK },
  W: { name: "weight gradient", colour: "#009e73", ink: WHITE },
  C: { name: "forward and backward", colour: "#0072b2", ink: WHITE },
  D: { name: "wait for data", colour: "#f0e442", ink: BLACK },
  R: { name: "wait for a message", colour: "rgba(128, 128, 128, 0.3)", ink: null },
  O: { name: "optimizer", colour: "#999999", ink: BLACK },
  S: { name: "send", colour: "#56b4e9", ink: BLACK },
  X: { name: "exchange", colour: "#cc79a7", ink: BLACK },
};
const ACTIONS = new Set("FBIW");
const BESIDE = new Set("SX");
const BELOW = new Set("OX"); // an optimizer and exchanges go on while the last gradients are computed and sent

/**
 * A timeline of the card as rows: {seconds, begin, rows: [{rank, idle, boxes, planned}], ...}.
 *
 * A box is {kind, stage, number, begin, end, faint, beside}, times in seconds since the begin of the step;
 * faint are those of a rank's later stages, beside those that go on while the rank does something else.
 */
export function stepOf({ measured, planned, idle, bubble, formula }) {
  const plans = new Map((planned?.rows ?? []).map((row) => [row.rank, boxesOf(row, planned.tick)]));
  const rows = measured.rows.map((row, index) => ({
    rank: row.rank,
    idle: idle[index],
    boxes: boxesOf(row, measured.tick),
    planned: plans.get(row.rank) ?? [],
  }));
  const every = rows.flatMap(({ boxes, planned: own }) => [...boxes, ...own]);
  return {
    rows,
    seconds: measured.seconds,
    end: every.reduce((latest, { end }) => Math.max(latest, end), 0),
    ranks: measured.ranks,
    schedule: measured.schedule,
    clockError: measured.clock_error,
    bubble,
    formula,
    isPlanned: plans.size > 0,
    isBeside: every.some(({ beside }) => beside),
    isFaint: every.some(({ faint }) => faint),
    kinds: Object.keys(KINDS).filter((kind) => every.some((box) => box.kind === kind)),
  };
}

/** The heading of a timeline. */
export function headingOf(step) {
  const formula = step.formula === null ? "" : `, by the formula of ${step.schedule} ${percent(step.formula)}`;
  return `Last step ${shortTime(step.seconds)} · idle ${percent(step.bubble)}${formula}`;
}

/** What should be known of a timeline beside; empty mostly. */
export function remarksOn({ rows, ranks, clockError }) {
  const shown = rows.length < ranks ? [`${rows.length} of ${ranks} ranks shown`] : [];
  return [...shown, ...(clockError > 0 ? [`clocks of hosts agree to ${shortTime(clockError)}`] : [])].join(" · ");
}

/** A timeline in words, for those who do not see it. */
export function summaryOf(step) {
  const one = ({ rank, idle }) => `rank ${rank} for ${percent(idle)}`;
  const byIdle = [...step.rows].sort((a, b) => a.idle - b.idle);
  const idle = step.rows.length <= 16
    ? step.rows.map(one).join(", ")
    : `the least ${one(byIdle[0])}, the most ${one(byIdle.at(-1))}`;
  return `Timeline of ${step.rows.length} ranks. ${headingOf(step)}. Idle: ${idle}. `
    + "Arrow keys go from box to box, plus, minus and 0 zoom.";
}

/** A box in two lines: what it is, and where and when it was. */
export function wordsOf(box, rank, isPlanned = false) {
  const { name } = KINDS[box.kind] ?? { name: "idle" };
  const what = ACTIONS.has(box.kind) ? `${name} of micro-batch ${box.number}, stage ${box.stage}`
    : box.kind === "S" ? `send to rank ${box.stage}`
      : box.kind === "R" ? `${name} from rank ${box.stage}, for micro-batch ${box.number}`
        : box.kind === "X" ? `exchange of gradients, number ${box.number}`
          : name;
  const when = `${shortTime(box.begin)} to ${shortTime(box.end)}: ${shortTime(box.end - box.begin)}`;
  return [isPlanned ? `planned: ${what}` : what, `rank ${rank}, ${when}`];
}

/** What is written on a box that is so many pixels wide: as much as fits. */
export function markOf({ kind, number }, width) {
  const { name } = KINDS[kind];
  const choices = ACTIONS.has(kind) ? [`${kind}${number}`, `${number}`] : [name, kind];
  return choices.find((words) => 6.3 * words.length + 3 <= width) ?? "";
}

/** The box of a lane at a time, or the nearest within `reach` seconds; undefined where there is none. */
export function boxAt(boxes, seconds, reach = 0) {
  const away = ({ begin, end }) => Math.max(begin - seconds, seconds - end, 0);
  let [found, least] = [undefined, reach];
  for (const box of [...boxes].sort(fromTheTop)) {
    const distance = away(box);
    if (distance <= least && (found === undefined || distance < least)) [found, least] = [box, distance];
  }
  return found;
}

/** Sorts boxes of a lane: those that lie below others are the last. */
export function fromTheTop(one, other) {
  return BELOW.has(one.kind) - BELOW.has(other.kind);
}

/** The gap between boxes of a lane at a time, as a box of no kind; `end` is that of the step. */
export function gapAt(boxes, seconds, end) {
  const before = boxes.filter((box) => box.end <= seconds).map((box) => box.end);
  const after = boxes.filter((box) => box.begin >= seconds).map((box) => box.begin);
  return { kind: "", begin: Math.max(0, ...before), end: Math.min(end, ...after) };
}

function boxesOf({ kinds, stages, numbers, begins, lengths }, tick) {
  const first = Math.min(...stages.filter((_, i) => ACTIONS.has(kinds[i])));
  return [...kinds].map((kind, i) => ({
    kind,
    stage: stages[i],
    number: numbers[i],
    begin: begins[i] * tick,
    end: (begins[i] + lengths[i]) * tick,
    faint: ACTIONS.has(kind) && stages[i] !== first,
    beside: BESIDE.has(kind),
  }));
}
