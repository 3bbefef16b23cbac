// The whole run, a row for each rank: what it did from when to when. Pure functions over the `ribbon` trait:
// {began, rows: [[rank, "sict", [0, 120, ...]], ...], meters}, begins in ms since `began`.

import { DOING } from "./activities.js";
import { clock, percent, shortTime } from "./format.js";
import { rememberMeters } from "./meters.js";

const RANKS_WITH_A_ROW = 16;
const MOST_ROWS = 64;

/** Adds what ranks have told since, in place: a new value of the trait would be sent with each. */
export function rememberTold(ribbon, told) {
  if (!told.rows || told.seq <= (ribbon.seq ?? 0)) return;
  ribbon.seq = told.seq;
  for (const [rank, doing, begins] of told.rows) {
    let row = ribbon.rows.find((one) => one[0] === rank);
    if (!row) {
      row = [rank, "", []];
      ribbon.rows.push(row);
      ribbon.rows.sort((a, b) => a[0] - b[0]);
    }
    row[1] += doing;
    row[2].push(...begins);
  }
  if (told.meters?.length) rememberMeters(ribbon.meters, told.meters);
}

/**
 * What a rank does, entry by entry: [{letter, begin, end}, ...] in seconds; the last one goes on until `end`.
 * Before it has said anything, the cell is on its way to it.
 */
export function entriesOf([, doing, begins], end) {
  const entries = [...doing].map((letter, i) => ({
    letter, begin: begins[i] / 1000, end: i + 1 < begins.length ? begins[i + 1] / 1000 : Math.max(end, begins[i] / 1000),
  }));
  const first = entries[0]?.begin ?? end;
  return first > 0 ? [{ letter: "s", begin: 0, end: first }, ...entries] : entries;
}

/**
 * Which ranks share a row: [{name, ranks}, ...]. Of few ranks each has one; of more each pipeline; else
 * neighbours, where there are too many.
 *
 * pipelines: [[0, 1], [2, 3], ...], or empty.
 */
export function ribbonRows(ranks, pipelines = []) {
  const all = Array.from({ length: ranks }, (_, rank) => rank);
  const isByPipeline = ranks > RANKS_WITH_A_ROW && pipelines.length > 0;
  const groups = isByPipeline ? pipelines : all.map((rank) => [rank]);
  const fold = Math.ceil(groups.length / MOST_ROWS);
  const rows = [];
  for (let i = 0; i < groups.length; i += fold) rows.push(groups.slice(i, i + fold).flat().sort((a, b) => a - b));
  return rows.map((own, index) => ({ name: rowName(own, isByPipeline && fold === 1 ? index : undefined), ranks: own }));
}

/** Seconds of each activity between two times, over ranks: {letter: mean}. */
export function sumsOf(ribbon, [from, to], end) {
  const sums = {};
  for (const row of ribbon.rows) {
    for (const entry of entriesOf(row, end)) {
      const seconds = Math.min(to, entry.end) - Math.max(from, entry.begin);
      if (seconds > 0) sums[entry.letter] = (sums[entry.letter] ?? 0) + seconds / ribbon.rows.length;
    }
  }
  return sums;
}

/** ``0:05 to 0:09, 4.2 s: training 80%, validation 20%``, the mean over ranks. */
export function rangeInWords(ribbon, [from, to], end) {
  const sums = sumsOf(ribbon, [from, to], end);
  const words = Object.keys(DOING)
    .filter((letter) => sums[letter] >= 0.005 * (to - from))
    .map((letter) => `${DOING[letter].words} ${percent(sums[letter] / (to - from))}`);
  return `${clock(from)} to ${clock(to)}, ${shortTime(to - from)}: ${words.join(", ")}`;
}

/** What ranks do just now: ``tracing``, or ``importing on 3 ranks, tracing on rank 0``. */
export function nowInWords({ rows = [] }) {
  const now = new Map();
  for (const [rank, doing] of rows) now.set(doing.at(-1), [...(now.get(doing.at(-1)) ?? []), rank]);
  const words = Object.keys(DOING).filter((letter) => now.has(letter)).map((letter) => {
    const ranks = now.get(letter);
    const who = ranks.length > 1 ? `${ranks.length} ranks` : `rank ${ranks[0]}`;
    return now.size > 1 ? `${DOING[letter].words} on ${who}` : DOING[letter].words;
  });
  return words.length ? words.join(", ") : DOING.s.words;
}

/** What lies under the pointer, in two lines. */
export function entryInWords(rank, { letter, begin, end }) {
  return [`rank ${rank}: ${DOING[letter].words}`, `${clock(begin)} to ${clock(end)}, ${shortTime(end - begin)}`];
}

/** The kinds that there are, in the order of a legend. */
export function lettersIn(ribbon) {
  const there = new Set(ribbon.rows.flatMap((row) => entriesOf(row, 0).map(({ letter }) => letter)));
  return Object.keys(DOING).filter((letter) => there.has(letter));
}

/**
 * An entry of training in stretches in which a rank is alike busy: [[begin, end, busy], ...], busy from 0 to 1,
 * and 1 where nobody looked. A look tells of the time before it; the last one of that after it, too.
 *
 * looks: [{seconds, busy: "97"}, ...], a digit for each rank, in order of time.
 */
export function busyStretches(looks, rank, { begin, end }) {
  const stretches = [];
  let from = begin;
  let busy = 1;
  for (const look of looks) {
    busy = look.busy[rank] === undefined ? 1 : (Number(look.busy[rank]) + 0.5) / 10;
    if (look.seconds <= begin) continue;
    const to = Math.min(look.seconds, end);
    const last = stretches.at(-1);
    if (last?.[2] === busy) last[1] = to;
    else stretches.push([from, to, busy]);
    from = to;
    if (from >= end) return stretches;
  }
  return [...stretches, [from, end, busy]];
}

function rowName(ranks, pipeline) {
  if (ranks.length === 1) return `rank ${ranks[0]}`;
  if (pipeline !== undefined) return `pipeline ${pipeline}`;
  return `ranks ${ranks[0]}–${ranks.at(-1)}`;
}
