// The card of a run. Its traits are the whole protocol; tnt_notebook/dashboard/card.py lists them.

import { remember } from "./history.js";
import { leaveBehind } from "./leave.js";
import { failure, header, metrics, progress, throughput, time } from "./parts.js";

const DRAWN = ["title", "state", "error", "frame", "rows", "time", "stop_requested"];

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
  const parts = [
    header(() => {
      model.set("stop_requested", true);
      model.save_changes();
    }),
    progress(), failure(), metrics(), time(), throughput(model.get("ranks")),
  ];
  el.classList.add("tnt-card");
  el.setAttribute("role", "group");
  el.append(...parts.map((part) => part.element));

  const draw = () => {
    const view = viewOf(model);
    el.dataset.state = view.state;
    el.setAttribute("aria-label", view.title);
    for (const part of parts) part.update(view);
  };
  const painter = paintWhenVisible(el, draw);
  for (const trait of DRAWN) model.on(`change:${trait}`, painter.invalidate);
  return () => {
    painter.close();
    for (const trait of DRAWN) model.off(`change:${trait}`, painter.invalidate);
  };
}

/** What the parts draw: the traits, with a requested stop shown before the kernel has answered. */
function viewOf(model) {
  const state = model.get("state");
  const asked = model.get("stop_requested") && (state === "running" || state === "starting");
  return {
    title: model.get("title"),
    state: asked ? "stopping" : state,
    error: model.get("error"),
    frame: model.get("frame"),
    rows: model.get("rows"),
    time: model.get("time"),
    history: model.get("history"),
  };
}

/** Draws at most once per frame of the screen, and not at all while the card is out of sight. */
function paintWhenVisible(element, draw) {
  let request = 0;
  let stale = true;
  let visible = false;
  const paint = () => {
    request = 0;
    stale = false;
    draw();
  };
  const ask = () => {
    if (stale && visible && !request) request = requestAnimationFrame(paint);
  };
  const sight = new IntersectionObserver((entries) => {
    visible = entries.at(-1).isIntersecting;
    ask();
  });
  const size = new ResizeObserver(() => invalidate());
  const invalidate = () => {
    stale = true;
    ask();
  };
  draw(); // at once: an element of no height would never come into sight
  sight.observe(element);
  size.observe(element);
  return {
    invalidate,
    close() {
      cancelAnimationFrame(request);
      sight.disconnect();
      size.disconnect();
    },
  };
}

export default { initialize, render };
