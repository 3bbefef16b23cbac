// The card of a sweep. What is inside comes drawn from the kernel, as it stays in the saved notebook; here are
// the header and what the buttons do. tnt_notebook/dashboard/card/sweep_view.py lists the traits.

import { button, make, setText } from "./dom.js";
import { leaveBehind } from "./leave.js";

const LIVE = new Set(["starting", "running", "stopping"]);

function initialize({ model }) {
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
  const title = make("div", "tnt-title", { role: "heading", "aria-level": 3 });
  const pill = make("span", "tnt-pill", { role: "status", "aria-live": "polite" });
  const stop = button("tnt-button tnt-stop", "Stop all", () => {
    say("stop_requested", true);
    draw();
  });
  const inside = make("div", "tnt-sweep");
  inside.addEventListener("click", (event) => {
    const pressed = event.target.closest("[data-trial]");
    if (!pressed) return;
    pressed.disabled = true;
    say("stop_trial", Number(pressed.dataset.trial));
  });
  el.classList.add("tnt-card");
  el.setAttribute("role", "group");
  const header = make("header", "tnt-header", {}, [title, pill, make("div", "tnt-buttons", {}, [stop])]);
  el.append(header, inside);

  const draw = () => {
    const asked = model.get("stop_requested") && ["starting", "running"].includes(model.get("state"));
    const state = asked ? "stopping" : model.get("state");
    el.dataset.state = state;
    el.setAttribute("aria-label", model.get("title"));
    setText(title, model.get("title"));
    setText(pill, state === "stopping" ? "stopping …" : state);
    pill.dataset.state = state;
    stop.hidden = !LIVE.has(state);
    stop.disabled = state === "stopping";
  };
  const fill = () => {
    const held = inside.contains(document.activeElement) ? document.activeElement.dataset.trial : undefined;
    inside.innerHTML = model.get("html");
    if (held !== undefined) inside.querySelector(`[data-trial="${held}"]`)?.focus();
  };
  draw();
  fill();
  for (const trait of ["title", "state", "stop_requested"]) model.on(`change:${trait}`, draw);
  model.on("change:html", fill);
  model.send({ drawn: true });
  return () => {
    for (const trait of ["title", "state", "stop_requested"]) model.off(`change:${trait}`, draw);
    model.off("change:html", fill);
  };
}

export default { initialize, render };
