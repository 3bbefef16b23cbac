// A step on all ranks, the median one: one canvas, to look at by pointer and by keyboard.

import { button, entry, make, setText, sharpContext } from "./dom.js";
import { KINDS } from "./kinds.js";
import { laneAt, lanesOf, topOf } from "./lanes.js";
import { extentOf, paint } from "./paint.js";
import { moved, showing, zoomed } from "./sight.js";
import { boxAt, gapAt, stepOf, summaryOf, wordsOf } from "./step.js";
import { tip } from "./tip.js";

const SWEEP_MS = 400;
const CLOSER = 1.5;
const REACH = 3; // pixels: a narrow box is found beside it, too

/** The part of the card that shows where on each rank the time of a step went. */
export function timeline() {
  const heading = make("span", "tnt-step");
  const plan = button("tnt-tool", "planned", () => change({ isPlanned: !state.isPlanned }), {
    "aria-pressed": "true", title: "Show the step as it would be if messages took no time",
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
    make("div", "tnt-line tnt-heading", {}, [heading, make("div", "tnt-tools", {}, [plan, ...zoom])]),
    over, legend, remarks, said,
  ]);

  /** sight: null for the whole step; selected and hovered: {index, box, name}. */
  let state = { isPlanned: true, sight: null, selected: null, hovered: null };
  let shown = null; // the timeline of the card that `step` was made of
  let step = null;
  let scene = null;
  let [picture, before] = [make("canvas", ""), make("canvas", "")];
  let sweepSince = -Infinity;
  let sweeping = 0;

  function change(news) {
    state = { ...state, ...news };
    draw();
  }

  /** Looks elsewhere: `where` takes what is in sight and the end of the step. */
  function look(where) {
    const next = where(state.sight ?? [0, step.end], step.end);
    const isWhole = next === null || next[1] - next[0] >= step.end * (1 - 1e-9);
    change({ sight: isWhole ? null : next });
  }

  function take(news) {
    const isFirst = step === null;
    shown = news;
    step = stepOf(news);
    const sight = state.sight && moved(state.sight, step.end, 0);
    change({ sight, selected: again(state.selected), hovered: null });
    words.hide();
    setText(heading, step.heading);
    setText(remarks, step.remarks);
    remarks.hidden = !step.remarks;
    canvas.setAttribute("aria-label", summaryOf(step));
    plan.hidden = !step.isPlanned;
    legend.replaceChildren(...legendOf(step));
    if (!isFirst && !matchMedia("(prefers-reduced-motion: reduce)").matches) sweep();
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
    const asked = JSON.stringify([theme, ratio, over.clientWidth, isPlanned, state.sight]);
    if (scene?.step !== step || scene.asked !== asked) {
      const ranks = step.rows.map(({ rank }) => rank);
      const layout = lanesOf(ranks, over.clientWidth, { isPlanned, isBeside: step.isBeside });
      const isOther = scene !== null && scene.asked !== asked;
      scene = { step, layout, sight: state.sight ?? [0, step.end], theme, ratio, asked };
      [picture, before] = [before, picture];
      paint(sharpContext(picture, layout.width, layout.height), scene);
      if (isOther) sweepSince = -Infinity; // what was before lies elsewhere
      plan.setAttribute("aria-pressed", String(state.isPlanned));
      zoom[0].disabled = zoom[2].disabled = state.sight === null;
      canvas.classList.toggle("tnt-closer", state.sight !== null);
    }
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

  function secondsAt(x) {
    const { layout: { plot }, sight: [from, to] } = scene;
    return from + ((x - plot.x) / plot.width) * (to - from);
  }

  /** What lies under a point: {index, box, name}, or null. */
  function under(x, y) {
    const { plot } = scene.layout;
    const lane = laneAt(scene.layout, y);
    if (!lane || x < plot.x || x > plot.x + plot.width) return null;
    const row = step.rows[lane.index];
    const boxes = lane.name === "planned" ? row.planned
      : row.boxes.filter(({ beside }) => beside === (lane.name === "beside"));
    const seconds = secondsAt(x);
    const box = boxAt(boxes, seconds) ?? boxAt(boxes, seconds, secondsAt(x + REACH) - seconds);
    if (box) return { ...lane, box };
    return lane.name === "measured" ? { ...lane, box: gapAt(boxes, seconds, step.seconds) } : null;
  }

  function tell({ index, box, name }, x, y) {
    words.show(wordsOf(box, step.rows[index].rank, name === "planned"), x, y);
  }

  function hover(x, y) {
    const hovered = under(x, y);
    state.hovered = hovered;
    compose();
    if (hovered) tell(hovered, x, topOf(scene.layout, hovered.index, hovered.name));
    else words.hide();
  }

  function select(index, box) {
    const name = box.beside ? "beside" : "measured";
    const sight = state.sight && showing(state.sight, step.end, box);
    change({ sight, selected: { index, box, name }, hovered: null });
    const { x, width } = extentOf(scene, box) ?? { x: 0, width: 0 };
    tell(state.selected, x + width / 2, topOf(scene.layout, index, name));
    setText(said, wordsOf(box, step.rows[index].rank).join(", "));
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

  const keys = {
    "+": () => look((s, end) => zoomed(s, end, CLOSER, middleOf(state.selected))),
    "-": () => look((s, end) => zoomed(s, end, 1 / CLOSER, middleOf(state.selected))),
    0: () => look(() => null),
    ArrowLeft: (event) => (event.shiftKey ? shift(-0.2) : go(-1, 0)),
    ArrowRight: (event) => (event.shiftKey ? shift(0.2) : go(1, 0)),
    ArrowUp: () => go(0, -1),
    ArrowDown: () => go(0, 1),
    Escape: () => {
      change({ selected: null });
      words.hide();
    },
  };
  keys["="] = keys["+"];

  function shift(share) {
    look(([from, to], end) => moved([from, to], end, share * (to - from)));
  }

  canvas.addEventListener("keydown", (event) => {
    const does = !event.ctrlKey && !event.metaKey && !event.altKey && keys[event.key];
    if (!does) return;
    event.preventDefault();
    event.stopPropagation();
    does(event);
  });
  canvas.addEventListener("blur", words.hide);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    const factor = Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) / 150);
    look((s, end) => zoomed(s, end, factor, secondsAt(event.offsetX)));
    hover(event.offsetX, event.offsetY);
  }, { passive: false });

  let dragged = null; // {x, sight} where it began
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    dragged = { x: event.offsetX, sight: scene.sight };
    words.hide();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!dragged || state.sight === null) {
      hover(event.offsetX, event.offsetY);
      return;
    }
    const { plot } = scene.layout;
    const [from, to] = dragged.sight;
    const by = ((dragged.x - event.offsetX) / plot.width) * (to - from);
    look((_, end) => moved(dragged.sight, end, by));
  });
  canvas.addEventListener("pointerup", (event) => {
    const isClick = dragged && Math.abs(dragged.x - event.offsetX) < REACH;
    dragged = null;
    const found = isClick && under(event.offsetX, event.offsetY);
    if (found?.box.kind && found.name !== "planned") select(found.index, found.box);
  });
  canvas.addEventListener("pointercancel", () => { dragged = null; });
  canvas.addEventListener("pointerleave", () => {
    change({ hovered: null });
    words.hide();
  });

  return {
    element,
    update(view) {
      element.hidden = !view.timeline.measured?.rows.length;
      if (element.hidden) return;
      if (view.timeline !== shown) take(view.timeline);
      else draw();
    },
  };
}

function middleOf(selected) {
  return selected ? (selected.box.begin + selected.box.end) / 2 : undefined;
}

/** The colours of the card as its theme has them. */
function themeOf(element) {
  const style = getComputedStyle(element);
  const named = (name) => style.getPropertyValue(`--tnt-${name}`).trim();
  return {
    text: named("text"), quiet: named("quiet"), line: named("line"), sunken: named("sunken"), back: named("back"),
    font: style.fontFamily,
  };
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
