// The parts of the card. Each is a function that makes an element, and returns it with an `update`.

import PARTS from "../tnt_notebook/telemetry/parts.json" with { type: "json" };
import { button, entry, heading, make, rankRow, setText } from "./dom.js";
import { clock, count, label, number, percent } from "./format.js";
import { fractionDone } from "./layout.js";
import { colourOf } from "./paint_run.js";
import { nowInWords } from "./ribbon.js";

export const LIVE = new Set(["starting", "running", "stopping"]);

/** Title, state, and the buttons; `on` has what they do: `save`, `pause` and `stop`. */
export function header(on) {
  const title = make("div", "tnt-title", { role: "heading", "aria-level": 3 });
  const pill = make("span", "tnt-pill", { role: "status", "aria-live": "polite" });
  const save = button("tnt-button", "Save trace", on.save);
  const pause = button("tnt-button", "Pause view", on.pause);
  const stop = button("tnt-button tnt-stop", "Stop", on.stop);
  return {
    element: make("header", "tnt-header", {}, [
      title, pill, make("div", "tnt-buttons", {}, [save, pause, stop]),
    ]),
    update(view) {
      setText(title, view.title);
      const state = view.lost ? "connection lost" : view.paused ? "paused" : view.state;
      setText(pill, state === "stopping" ? "stopping …" : state);
      pill.dataset.state = state;
      save.hidden = !view.can_save;
      pause.hidden = !LIVE.has(view.state) || view.lost > 0;
      setText(pause, view.paused ? "Resume view" : "Pause view");
      stop.hidden = !LIVE.has(view.state);
      stop.disabled = view.state === "stopping" || view.lost > 0;
      save.disabled = view.lost > 0;
      stop.setAttribute("aria-label", `Stop ${view.title}`);
    },
  };
}

/** Words that are there only now and then: `pick` takes them from a view. */
export function notice(tag, className, role, pick) {
  const element = make(tag, className, { role });
  return {
    element,
    update(view) {
      element.hidden = !pick(view);
      setText(element, pick(view));
    },
  };
}

/** What the ranks that failed were doing: folded, until a person opens it. */
export function traceback() {
  const calls = make("pre", "");
  const element = make("details", "tnt-traceback", {}, [make("summary", "", {}, ["Traceback"]), calls]);
  return {
    element,
    update(view) {
      element.hidden = !view.traceback;
      setText(calls, view.traceback);
    },
  };
}

/** How far the run is, and how long it will take. */
export function progress() {
  const where = make("span", "tnt-where");
  const when = make("span", "tnt-when");
  const fill = make("div", "tnt-fill");
  const bar = make("div", "tnt-bar", {
    role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "progress",
  }, [fill]);
  return {
    element: make("div", "tnt-progress", {}, [bar, make("div", "tnt-line", {}, [where, when])]),
    update(view) {
      const { frame, state } = view;
      const fraction = state === "finished" ? 1 : fractionDone(frame);
      bar.classList.toggle("tnt-unknown", fraction === null && LIVE.has(state));
      bar.style.setProperty("--tnt-epochs", frame.epochs > 1 && frame.epochs <= 60 ? frame.epochs : 1);
      fill.style.width = `${100 * (fraction ?? (LIVE.has(state) ? 100 : 0))}%`;
      setText(where, whereText(view));
      setText(when, whenText(view));
      bar.setAttribute("aria-valuetext", `${where.textContent}, ${when.textContent}`);
      if (fraction === null) bar.removeAttribute("aria-valuenow");
      else bar.setAttribute("aria-valuenow", Math.round(100 * fraction));
    },
  };
}

/** A tile for each metric: the number, and its validation. */
export function metrics() {
  const element = make("div", "tnt-metrics", { role: "list", "aria-label": "loss and metrics" });
  const tiles = new Map();
  return {
    element,
    update({ frame, rows }) {
      const last = rows.at(-1) ?? {};
      const names = Object.keys({ ...frame.logs, ...last })
        .filter((name) => name !== "epoch" && !name.startsWith("val_"));
      element.hidden = names.length === 0;
      for (const [name, { element: one }] of tiles) one.hidden = !names.includes(name);
      for (const name of names) {
        if (!tiles.has(name)) {
          tiles.set(name, tile(name, colourOf(tiles.size)));
          element.append(tiles.get(name).element);
        }
        tiles.get(name).update({ frame, last });
      }
    },
  };
}

/** Where the time of a step goes: a bar for each rank, and what limits training in a sentence. */
export function time() {
  const [top, total] = heading("Where a step goes");
  const limit = make("p", "tnt-limit", { role: "status", "aria-live": "polite" });
  const bars = make("div", "tnt-ranks", { role: "list" });
  const entries = Object.fromEntries(Object.entries(PARTS).map(([part, { colour }]) => [part, entry(part, colour)]));
  const legend = make("div", "tnt-legend", { "aria-hidden": "true" }, Object.values(entries));
  const element = make("div", "tnt-time", {}, [top, limit, bars, legend]);
  const shown = [];
  return {
    element,
    update({ time: { step, limit: sentence, rows = [] } }) {
      element.hidden = rows.length === 0;
      setText(total, step);
      setText(limit, sentence);
      while (shown.length < rows.length) {
        shown.push(stepBar());
        bars.append(shown.at(-1).element);
      }
      shown.forEach((bar, i) => bar.update(rows[i]));
      for (const [part, { rare }] of Object.entries(PARTS)) {
        entries[part].hidden = rare && !rows.some(([, shares]) => shares[part]);
      }
    },
  };
}

function stepBar() {
  const work = make("span", "tnt-share");
  const names = Object.keys(PARTS);
  const parts = names.map((part) => make("div", "", { style: `background: ${PARTS[part].colour}` }));
  const [element, name] = rankRow("", make("div", "tnt-parts", {}, parts), work);
  return {
    element,
    update(row) {
      element.hidden = !row;
      if (!row) return;
      const [title, shares] = row;
      const there = names.filter((part) => shares[part] || !PARTS[part].rare);
      const words = there.map((part) => `${part}: ${percent(shares[part])}`);
      setText(name, title);
      names.forEach((part, i) => {
        parts[i].style.width = `${100 * (shares[part] ?? 0)}%`;
        parts[i].title = `${part}: ${percent(shares[part] ?? 0)}`;
      });
      setText(work, `${percent(shares.work)} work`);
      element.setAttribute("aria-label", `${title}: ${words.join(", ")}`);
    },
  };
}

function tile(name, colour) {
  const value = make("div", "tnt-number");
  const validation = make("div", "tnt-validation");
  const line = make("i", "tnt-stroke", { style: `background: var(--tnt-${colour})` });
  const caption = make("div", "tnt-name", { title: name }, [line, label(name)]);
  return {
    element: make("div", "tnt-tile", { role: "listitem" }, [caption, value, validation]),
    update({ frame, last }) {
      const current = frame.logs[name] === undefined ? last[name] : frame.logs[name];
      setText(value, number(current));
      value.classList.toggle("tnt-bad", current === null);
      const checked = last[`val_${name}`];
      setText(validation, checked === undefined ? "" : `validation ${number(checked)}`);
    },
  };
}

function whereText({ frame: { phase, epoch, epochs, step, steps }, state, ribbon }) {
  if (epoch === 0) return LIVE.has(state) ? nowInWords(ribbon) : "no step was done";
  const of = steps ? `step ${count(step)} of ${count(steps)}` : `step ${count(step)}`;
  return phase === "fit" ? `epoch ${count(epoch)} of ${count(epochs)} · ${of}` : `${phase} · ${of}`;
}

function whenText({ frame: { eta }, seconds, state }) {
  if (!LIVE.has(state)) return `took ${clock(seconds)}`;
  return eta === null ? clock(seconds) : `${clock(seconds)} · ${clock(eta)} left`;
}
