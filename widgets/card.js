// The card of a run. Its traits are the whole protocol; tnt_notebook/dashboard/card/card.py lists them.

import { clock } from "./format.js";
import { remember } from "./history.js";
import { leaveBehind, takeOver } from "./leave.js";
import { unpacked } from "./packed.js";
import { LIVE, header, metrics, notice, progress, time, traceback } from "./parts.js";
import { rememberTold } from "./ribbon.js";
import { run } from "./run.js";
import { timeline } from "./timeline.js";

const DRAWN = [
  "title", "state", "error", "traceback", "frame", "rows", "time", "stop_requested", "can_save", "saved",
  "time_summary", "look", "low",
];
const TICK_MS = 500; // the clock goes on between messages
const SILENCE_S = 10; // the kernel speaks every other second

function initialize({ model }) {
  model.on("change:frame", () => remember(model.get("history"), model.get("frame")));
  model.on("change:told", () => rememberTold(model.get("ribbon"), model.get("told")));
  const leave = () => {
    const left = model.get("left");
    if (left.model_id) leaveBehind(left, model.widget_manager?.context?.model?.cells);
  };
  model.on("change:left", leave);
  leave();
  const follow = () => {
    const { card, id } = model.get("follows");
    if (card) takeOver(card, id, model.widget_manager?.context?.model?.cells);
  };
  model.on("change:follows", follow);
  follow();
}

function render({ model, el }) {
  const say = (trait, value) => {
    model.set(trait, value);
    model.save_changes();
  };
  let step = {};
  let heardAt = performance.now(); // when the kernel spoke last
  let paused = null; // the view as it stood; the run and other views go on
  const parts = [
    header({
      save: () => say("save_requested", model.get("save_requested") + 1),
      pause: () => {
        paused = paused ? null : frozen(viewOf(model, step, heardAt));
        painter.invalidate();
      },
      stop: () => say("stop_requested", true),
    }),
    notice("div", "tnt-caption tnt-saved", "status", ({ saved }) => saved),
    progress(), notice("div", "tnt-caption", "note", ({ frame }) => frame.plan ?? ""),
    notice("div", "tnt-caption", "note", ({ frame }) => frame.exchange ?? ""),
    notice("div", "tnt-caption", "note", ({ frame }) => frame.input ?? ""),
    notice("div", "tnt-caption", "note", ({ frame }) => frame.skipped ?? ""),
    notice("p", "tnt-error", "alert", ({ frame }) => frame.diverged ?? ""),
    notice("p", "tnt-error", "alert", ({ low }) => low),
    notice("p", "tnt-error", "alert", ({ error }) => error), traceback(),
    notice("p", "tnt-error", "alert", lostInWords),
    metrics(), run(model.get("ranks"), (look) => say("look", look)), timeline((look) => say("look", look)), time(),
  ];
  el.classList.add("tnt-card");
  el.setAttribute("role", "group");
  el.append(...parts.map((part) => part.element));

  const draw = () => {
    const now = viewOf(model, step, heardAt);
    const view = paused ? { ...now, ...paused, paused: true } : now;
    el.dataset.state = view.state;
    el.setAttribute("aria-label", view.title);
    for (const part of parts) part.update(view);
  };
  const painter = paintWhenVisible(el, draw);
  const takeStep = async () => {
    const packed = model.get("timeline");
    const news = await unpacked(packed);
    if (packed !== model.get("timeline")) return; // there is a newer one
    step = news;
    painter.invalidate();
  };
  const hear = () => { heardAt = performance.now(); };
  takeStep();
  model.on("change:timeline", takeStep);
  model.on("change:now", hear);
  for (const trait of [...DRAWN, "told"]) model.on(`change:${trait}`, painter.invalidate);
  model.send({ drawn: true }); // no trait: while the kernel is blocked, others would wait behind it
  const ticking = setInterval(() => LIVE.has(model.get("state")) && painter.invalidate(), TICK_MS);
  return () => {
    painter.close();
    clearInterval(ticking);
    model.off("change:timeline", takeStep);
    model.off("change:now", hear);
    for (const trait of [...DRAWN, "told"]) model.off(`change:${trait}`, painter.invalidate);
  };
}

/** What the parts draw: the traits, with a requested stop shown before the kernel has answered. */
function viewOf(model, step, heardAt) {
  const view = Object.fromEntries([...DRAWN, "history", "ribbon"].map((trait) => [trait, model.get(trait)]));
  const asked = view.stop_requested && ["starting", "running"].includes(view.state);
  const state = asked ? "stopping" : view.state;
  const silence = LIVE.has(state) ? (performance.now() - heardAt) / 1000 : 0;
  const lost = silence > SILENCE_S ? silence : 0;
  const heard = model.get("now") ? model.get("now") - view.ribbon.began : view.frame.elapsed;
  return { ...view, state, timeline: step, lost, seconds: heard + (lost ? 0 : silence) };
}

function lostInWords({ lost }) {
  if (!lost) return "";
  return `No word from the kernel for ${clock(lost)}: it was restarted, or the connection is lost. `
    + "Ranks that still train are found by %tnt_cluster attach.";
}

/** What of a view stands still while it is paused: not the state of the run. */
function frozen({ frame, rows, time: parts, timeline: step, history, ribbon, seconds, time_summary }) {
  const still = { history: [...history], ribbon: structuredClone(ribbon) };
  return { frame, rows, time: parts, timeline: step, seconds, time_summary, ...still };
}

/** Draws at most once per frame of the screen, and not at all while the card is out of sight. */
function paintWhenVisible(element, draw) {
  let [request, stale, visible] = [0, true, false];
  const paint = () => {
    [request, stale] = [0, false];
    draw();
  };
  const ask = () => {
    if (stale && visible && !request) request = requestAnimationFrame(paint);
  };
  const invalidate = () => {
    stale = true;
    ask();
  };
  const sight = new IntersectionObserver((entries) => {
    visible = entries.at(-1).isIntersecting;
    ask();
  });
  const size = new ResizeObserver(invalidate);
  const theme = new MutationObserver(invalidate); // a canvas does not follow CSS
  draw(); // at once: an element of no height would never come into sight
  sight.observe(element);
  size.observe(element);
  theme.observe(document.body, { attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  return {
    invalidate,
    close() {
      cancelAnimationFrame(request);
      for (const observer of [sight, size, theme]) observer.disconnect();
    },
  };
}

export default { initialize, render };
