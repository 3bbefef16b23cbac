// The card of a run. Its traits are the whole protocol; tnt_notebook/dashboard/card.py lists them.

import { remember } from "./history.js";
import { leaveBehind } from "./leave.js";
import { unpacked } from "./packed.js";
import { header, metrics, notice, progress, time, traceback } from "./parts.js";
import { throughput } from "./throughput.js";
import { timeline } from "./timeline.js";

const DRAWN = [
  "title", "state", "error", "traceback", "frame", "rows", "time", "stop_requested", "can_save",
  "saved",
];

function initialize({ model }) {
  model.on("change:frame", () => remember(model.get("history"), model.get("frame")));
  const leave = () => {
    const left = model.get("left");
    if (left.model_id) leaveBehind(left, model.widget_manager?.context?.model?.cells);
  };
  model.on("change:left", leave);
  leave();
}

function render({ model, el }) {
  const say = (trait, value) => {
    model.set(trait, value);
    model.save_changes();
  };
  let step = {};
  let paused = null; // the view as it stood; the run and other views go on
  const parts = [
    header({
      save: () => say("save_requested", model.get("save_requested") + 1),
      pause: () => {
        paused = paused ? null : frozen(viewOf(model, step));
        painter.invalidate();
      },
      stop: () => say("stop_requested", true),
    }),
    notice("div", "tnt-caption tnt-saved", "status", ({ saved }) => saved),
    progress(),
    notice("p", "tnt-error", "alert", ({ error }) => error), traceback(),
    metrics(), time(), timeline(), throughput(model.get("ranks")),
  ];
  el.classList.add("tnt-card");
  el.setAttribute("role", "group");
  el.append(...parts.map((part) => part.element));

  const draw = () => {
    const now = viewOf(model, step);
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
  takeStep();
  model.on("change:timeline", takeStep);
  for (const trait of DRAWN) model.on(`change:${trait}`, painter.invalidate);
  return () => {
    painter.close();
    model.off("change:timeline", takeStep);
    for (const trait of DRAWN) model.off(`change:${trait}`, painter.invalidate);
  };
}

/** What the parts draw: the traits, with a requested stop shown before the kernel has answered. */
function viewOf(model, step) {
  const view = Object.fromEntries([...DRAWN, "history"].map((trait) => [trait, model.get(trait)]));
  const asked = view.stop_requested && ["starting", "running"].includes(view.state);
  return { ...view, state: asked ? "stopping" : view.state, timeline: step };
}

/** What of a view stands still while it is paused: not the state of the run. */
function frozen({ frame, rows, time: parts, timeline: step, history }) {
  return { frame, rows, time: parts, timeline: step, history: [...history] };
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
