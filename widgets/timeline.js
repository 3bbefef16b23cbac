// The lower deck: a step on all ranks: one canvas, to look at by pointer and by keyboard.

import { obeyWheel, paintRange, secondsAt, sightOf } from "./deck.js";
import { button, entry, make, setText, sharpContext } from "./dom.js";
import { clock } from "./format.js";
import { obeyKeys } from "./keys.js";
import { KINDS } from "./kinds.js";
import { laneAt, lanesOf, topOf } from "./lanes.js";
import { extentOf, paint } from "./paint.js";
import { CLOSER, moved, showing, zoomed } from "./sight.js";
import { boxAt, gapAt, rangeOfStep, stepOf, summaryOf, wordsOf } from "./step.js";
import { themeOf } from "./theme.js";
import { tip } from "./tip.js";

const SWEEP_MS = 400;
const LOOKS = {
  live: "Follow the run", median: "The step of median length, of those kept", slowest: "The longest step kept",
};
const REACH = 3; // pixels: a narrow box is found beside it, too

/** The part of the card that shows where on each rank the time of a step went. */
export function timeline(lookAt) {
  const heading = make("span", "tnt-step");
  const looks = ["live", "median", "slowest"].map((which) => button("tnt-tool", which, () => lookAt({ which }), {
    title: LOOKS[which], "aria-pressed": "false",
  }));
  const plan = button("tnt-tool", "planned", () => change({ isPlanned: !state.isPlanned }), {
    "aria-pressed": "true", title: "Show the step as it would be if messages took no time",
  });
  const critical = button("tnt-tool", "critical path", () => change({ isPath: !state.isPath }), {
    "aria-pressed": "false", title: "Outline the boxes that the step waited for, one after the other",
  });
  const zoom = [
    button("tnt-tool", "−", () => look((s, end) => zoomed(s, end, 1 / CLOSER)), { "aria-label": "Zoom out", title: "Zoom out (-)" }),
    button("tnt-tool", "+", () => look((s, end) => zoomed(s, end, CLOSER)), { "aria-label": "Zoom in", title: "Zoom in (+, or ctrl and wheel)" }),
    button("tnt-tool", "whole step", () => look(() => null), { title: "Show the whole step (0)" }),
  ];
  const canvas = make("canvas", "tnt-step-canvas", {
    role: "img", tabindex: 0, "data-lm-suppress-shortcuts": "true", // else arrows would move JupyterLab's cells
  });
  const over = make("div", "tnt-over", {}, [canvas]);
  const words = tip(over);
  const said = make("div", "tnt-said", { role: "status", "aria-live": "polite" });
  const legend = make("div", "tnt-legend", { "aria-hidden": "true" });
  const remarks = make("div", "tnt-caption");
  const element = make("div", "tnt-timeline", {}, [
    make("div", "tnt-line tnt-heading", {}, [heading, make("div", "tnt-tools", {}, [...looks, plan, critical, ...zoom])]),
    over, make("p", "tnt-time-summary tnt-range", { role: "status", "aria-live": "polite", hidden: "" }), legend, remarks, said,
  ]);
  const rangeSaid = element.querySelector(".tnt-range");

  /** sight: null for the whole step; range: what is selected; selected and hovered: {index, box, name}. */
  let state = { isPlanned: true, isPath: true, sight: null, range: null, selected: null, hovered: null };
  let shown = null; // the timeline of the card that `step` was made of
  let step = null;
  let scene = null;
  let [picture, before] = [make("canvas", ""), make("canvas", "")];
  let pointed = null; // [x, y] of the pointer, while it is over the canvas
  let sweepSince = -Infinity;
  let sweeping = 0;

  function change(news) {
    state = { ...state, ...news };
    draw();
  }

  /** Looks elsewhere: `where` takes what is in sight and the end of the step. */
  function look(where) {
    const next = where(state.sight ?? [0, step.end], step.end);
    change({ sight: sightOf(next, step.end) });
  }

  function take(news) {
    const isFirst = step === null;
    shown = news;
    step = stepOf(news);
    const sight = state.sight && moved(state.sight, step.end, 0);
    const range = state.range && state.range[0] < step.end ? [state.range[0], Math.min(state.range[1], step.end)] : null;
    change({ sight, range, selected: again(state.selected), hovered: null });
    tellAgain();
    setText(heading, `${step.heading}${news.which === "at" ? ` · at ${clock(news.at)}` : ""}`);
    setText(remarks, step.remarks);
    remarks.hidden = !step.remarks;
    canvas.setAttribute("aria-label", summaryOf(step));
    plan.hidden = !step.isPlanned;
    legend.replaceChildren(...legendOf(step));
    if (!isFirst && !matchMedia("(prefers-reduced-motion: reduce)").matches) sweep();
  }

  /** What was told of the step before, of this one: of what lies under the pointer, or is selected. */
  function tellAgain() {
    if (!words.isShown() || scene === null) return;
    if (pointed) hover(...pointed);
    else if (state.selected) tellSelected();
    else words.hide();
  }

  /** The box in the new step that was selected in the one before. */
  function again(selected) {
    const boxes = step.rows[selected?.index]?.boxes ?? [];
    const box = boxes.find(({ kind, stage, number }) => (
      kind === selected.box.kind && stage === selected.box.stage && number === selected.box.number));
    return box ? { ...selected, box } : null;
  }

  function draw() {
    if (over.clientWidth === 0) return;
    const theme = themeOf(canvas);
    const ratio = window.devicePixelRatio || 1;
    const isPlanned = step.isPlanned && state.isPlanned;
    const { isPath } = state;
    const asked = JSON.stringify([theme, ratio, over.clientWidth, isPlanned, isPath, state.sight]);
    if (scene?.step !== step || scene.asked !== asked) {
      const ranks = step.rows.map(({ rank }) => rank);
      const layout = lanesOf(ranks, over.clientWidth, { isPlanned, isBeside: step.isBeside });
      const isOther = scene !== null && scene.asked !== asked;
      scene = { step, layout, sight: state.sight ?? [0, step.end], theme, ratio, isPath, asked };
      [picture, before] = [before, picture];
      paint(sharpContext(picture, layout.width, layout.height), scene);
      if (isOther) sweepSince = -Infinity; // what was before lies elsewhere
      plan.setAttribute("aria-pressed", String(state.isPlanned));
      critical.setAttribute("aria-pressed", String(isPath));
      zoom[0].disabled = zoom[2].disabled = state.sight === null;
    }
    rangeSaid.hidden = !state.range;
    if (state.range) setText(rangeSaid, rangeOfStep(step, state.range));
    compose();
  }

  /** Replays the step: it comes from the left over the one before. */
  function sweep() {
    sweepSince = performance.now();
    canvas.dataset.sweep = "going";
    const frame = () => {
      compose();
      sweeping = performance.now() - sweepSince < SWEEP_MS ? requestAnimationFrame(frame) : 0;
      if (!sweeping) canvas.dataset.sweep = "done";
    };
    if (!sweeping) sweeping = requestAnimationFrame(frame);
  }

  /** The picture, left of the sweep, with what is selected and hovered. */
  function compose() {
    if (scene === null) return;
    const { layout, ratio, theme } = scene;
    if (canvas.width !== picture.width || canvas.height !== picture.height) {
      sharpContext(canvas, layout.width, layout.height);
    }
    const context = canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(picture, 0, 0);
    const done = (performance.now() - sweepSince) / SWEEP_MS;
    const isSame = before.width === picture.width && before.height === picture.height;
    if (done < 1 && isSame) {
      const from = Math.round(ratio * (layout.plot.x + done * layout.plot.width));
      const width = Math.round(ratio * (layout.plot.x + layout.plot.width)) - from;
      const height = Math.round(ratio * layout.axis);
      if (width > 0) context.drawImage(before, from, 0, width, height, from, 0, width, height);
      context.fillStyle = theme.quiet;
      context.fillRect(from, 0, Math.max(1, ratio), height);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (state.range) paintRange(context, scene, state.range, layout.top - 4, layout.axis);
    for (const one of [state.hovered, state.selected]) {
      if (one) outline(context, one, one === state.selected ? 2 : 1);
    }
  }

  function outline(context, { index, box, name }, width) {
    const extent = box.kind && extentOf(scene, box);
    const { height } = scene.layout.lanes[name];
    if (!extent || height === 0) return;
    context.strokeStyle = scene.theme.text;
    context.lineWidth = width;
    context.strokeRect(
      extent.x - width / 2, topOf(scene.layout, index, name) - width / 2, extent.width + width, height + width);
  }

  /** What lies under a point: {index, box, name}, or null. */
  function under(x, y) {
    const { plot } = scene.layout;
    const lane = laneAt(scene.layout, y);
    if (!lane || x < plot.x || x > plot.x + plot.width) return null;
    const row = step.rows[lane.index];
    const boxes = lane.name === "planned" ? row.planned
      : row.boxes.filter(({ beside }) => beside === (lane.name === "beside"));
    const seconds = secondsAt(scene, x);
    const box = boxAt(boxes, seconds) ?? boxAt(boxes, seconds, secondsAt(scene, x + REACH) - seconds);
    if (box) return { ...lane, box };
    return lane.name === "measured" ? { ...lane, box: gapAt(boxes, seconds, step.seconds) } : null;
  }

  function tell({ index, box, name }, x, y) {
    words.show(wordsOf(box, step.rows[index].rank, name === "planned"), x, y);
  }

  function hover(x, y) {
    pointed = [x, y];
    const hovered = under(x, y);
    state.hovered = hovered;
    compose();
    if (hovered) tell(hovered, x, topOf(scene.layout, hovered.index, hovered.name));
    else words.hide();
  }

  function select(index, box) {
    const name = box.beside ? "beside" : "measured";
    const sight = state.sight && showing(state.sight, step.end, box);
    pointed = null;
    change({ sight, selected: { index, box, name }, hovered: null });
    tellSelected();
    setText(said, wordsOf(box, step.rows[index].rank).join(", "));
  }

  function tellSelected() {
    const { index, box, name } = state.selected;
    const { x, width } = extentOf(scene, box) ?? { x: 0, width: 0 };
    tell(state.selected, x + width / 2, topOf(scene.layout, index, name));
  }

  /** Selects the box so many further in the row, or the one at the same time so many rows below. */
  function go(along, down) {
    if (!state.selected) {
      const index = step.rows.findIndex(({ boxes }) => boxes.length > 0);
      if (index >= 0) select(index, step.rows[index].boxes[0]);
      return;
    }
    const { index, box } = state.selected;
    const next = Math.max(0, Math.min(step.rows.length - 1, index + down));
    const { boxes } = step.rows[next];
    const found = down
      ? boxAt(boxes.filter(({ beside }) => beside === box.beside), (box.begin + box.end) / 2, Infinity)
      : boxes[Math.max(0, Math.min(boxes.length - 1, boxes.indexOf(box) + along))];
    if (found) select(next, found);
  }

  element.append(obeyKeys(canvas, [
    [["w", "+", "="], "closer", () => look((s, end) => zoomed(s, end, CLOSER, middleOf(state.selected)))],
    [["s", "-"], "farther", () => look((s, end) => zoomed(s, end, 1 / CLOSER, middleOf(state.selected)))],
    [["a"], "to the left", () => shift(-0.2)],
    [["d"], "to the right", () => shift(0.2)],
    [["ArrowLeft"], "the box before", (event) => (event.shiftKey ? shift(-0.2) : go(-1, 0))],
    [["ArrowRight"], "the box after", (event) => (event.shiftKey ? shift(0.2) : go(1, 0))],
    [["ArrowUp"], "the rank above", () => go(0, -1)],
    [["ArrowDown"], "the rank below", () => go(0, 1)],
    [["0"], "the whole step", () => look(() => null)],
    [["Escape"], "no selection", () => {
      change({ selected: null, range: null });
      words.hide();
    }],
  ]));

  function shift(share) {
    look(([from, to], end) => moved([from, to], end, share * (to - from)));
  }

  canvas.addEventListener("blur", words.hide);
  obeyWheel(canvas, {
    shift,
    zoom: (factor, event) => {
      look((now, end) => zoomed(now, end, factor, secondsAt(scene, event.offsetX)));
      hover(event.offsetX, event.offsetY);
    },
  });

  let dragged = null; // {x} where it began
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    dragged = { x: event.offsetX };
    words.hide();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!dragged || Math.abs(event.offsetX - dragged.x) < REACH) {
      hover(event.offsetX, event.offsetY);
      return;
    }
    const range = [dragged.x, event.offsetX].map((x) => Math.max(0, Math.min(step.end, secondsAt(scene, x))));
    change({ range: range.sort((a, b) => a - b), hovered: null });
  });
  canvas.addEventListener("pointerup", (event) => {
    const isClick = dragged && Math.abs(dragged.x - event.offsetX) < REACH;
    dragged = null;
    if (isClick && state.range) change({ range: null });
    const found = isClick && under(event.offsetX, event.offsetY);
    if (found?.box.kind && found.name !== "planned") select(found.index, found.box);
  });
  canvas.addEventListener("pointercancel", () => { dragged = null; });
  canvas.addEventListener("pointerleave", () => {
    pointed = null;
    change({ hovered: null });
    words.hide();
  });

  return {
    element,
    update(view) {
      element.hidden = !view.timeline.measured?.rows.length;
      if (element.hidden) return;
      for (const one of looks) one.setAttribute("aria-pressed", String(one.textContent === view.look.which));
      if (view.timeline !== shown) take(view.timeline);
      else draw();
    },
  };
}

function middleOf(selected) {
  return selected ? (selected.box.begin + selected.box.end) / 2 : undefined;
}

/** What is in this step, and no more. */
function legendOf(step) {
  return [
    ...step.kinds.map((kind) => {
      const { words, colour, ink } = KINDS[kind];
      return entry(words, colour, kind, ink ?? "inherit");
    }),
    entry("idle", "var(--tnt-sunken)"),
    ...(step.isPlanned ? [make("span", "", {}, ["thin, above: as planned"])] : []),
    ...(step.isFaint ? [make("span", "", {}, ["faint: a rank's second stage"])] : []),
  ];
}
