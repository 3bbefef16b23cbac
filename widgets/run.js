// The upper deck: the whole run, from its begin until now. The playhead says which step the lower deck shows.

import { DOING } from "./activities.js";
import { obeyWheel, paintRange, secondsAt, sightOf, xAt } from "./deck.js";
import { button, entry, make, setText, sharpContext } from "./dom.js";
import { clock } from "./format.js";
import { curvesOf, epochEnds, looksOf, valuesInWords } from "./history.js";
import { obeyKeys } from "./keys.js";
import { meterInWords, metersInWords, metersOf } from "./meters.js";
import { paintRun, runLayout } from "./paint_run.js";
import { entriesOf, entryInWords, lettersIn, rangeInWords, ribbonRows } from "./ribbon.js";
import { CLOSER, moved, zoomed } from "./sight.js";
import { themeOf } from "./theme.js";
import { tip } from "./tip.js";

const NEAR = 6; // pixels: the playhead is taken from here, too
const CLICK = 3; // pixels: who moves less has clicked

/** `lookAt` is called with what the `look` trait is to be. */
export function run(ranks, lookAt) {
  const timeSummary = make("p", "tnt-time-summary", { role: "status", "aria-live": "polite" });
  const log = button("tnt-tool", "log", () => change({ isLog: !state.isLog }), {
    "aria-pressed": "false", title: "Logarithmic scale of loss and metrics",
  });
  const meters = button("tnt-tool", "meters", () => change({ isMeters: !state.isMeters }), {
    "aria-pressed": "true", title: "Show what ranks use: processors, memory, network, GPU, power",
  });
  const whole = button("tnt-tool", "whole run", () => change({ sight: null, range: null }), { title: "Show the whole run (0)" });
  const canvas = make("canvas", "tnt-run-canvas", {
    role: "img", tabindex: 0, "data-lm-suppress-shortcuts": "true", // else keys would move JupyterLab's cells
  });
  const over = make("div", "tnt-over", {}, [canvas]);
  const words = tip(over);
  const legend = make("div", "tnt-legend", { "aria-hidden": "true" });
  const keys = obeyKeys(canvas, [
    [["w", "+", "="], "closer", () => zoom(CLOSER)],
    [["s", "-"], "farther", () => zoom(1 / CLOSER)],
    [["a"], "to the left", () => shift(-0.2)],
    [["d"], "to the right", () => shift(0.2)],
    [["ArrowLeft"], "the step before", () => goTo(-1)],
    [["ArrowRight"], "the step after", () => goTo(1)],
    [["l"], "the latest step", () => lookAt({ which: "live" })],
    [["0"], "the whole run", () => change({ sight: null, range: null })],
    [["Escape"], "no selection", () => change({ range: null })],
  ]);
  const element = make("div", "tnt-run", {}, [
    make("div", "tnt-line tnt-heading", {}, [timeSummary, make("div", "tnt-tools", {}, [log, meters, whole])]),
    over, legend, keys,
  ]);

  /** sight: null for the whole run; range: what is selected; both [from, to] in seconds. */
  let state = { sight: null, range: null, isLog: false, isMeters: true };
  let view = null;
  let scene = null;

  function change(news) {
    state = { ...state, ...news };
    draw();
  }

  function zoom(factor, at) {
    const { end } = scene;
    change({ sight: sightOf(zoomed(state.sight ?? [0, end], end, factor, at), end) });
  }

  function shift(share) {
    if (!state.sight) return;
    const [from, to] = state.sight;
    change({ sight: moved(state.sight, scene.end, share * (to - from)) });
  }

  /** To where the steps before and after the playhead may be: a fiftieth of what is in sight. */
  function goTo(direction) {
    const [from, to] = scene.sight;
    const at = view.timeline.at ?? scene.end;
    lookAt({ which: "at", seconds: Math.max(0, Math.min(scene.end, at + (direction * (to - from)) / 50)) });
  }

  function draw() {
    if (view === null || over.clientWidth === 0) return;
    const { ribbon, history, rows: epochs, seconds } = view;
    const end = Math.max(seconds, 1e-3);
    const curves = history.length ? curvesOf(history, epochs, ribbon.began) : [];
    const rows = ribbonRows(Math.max(ranks, ...ribbon.rows.map(([rank]) => rank + 1)), view.timeline.pipelines);
    const theme = themeOf(canvas);
    const ratio = window.devicePixelRatio || 1;
    const there = metersOf(ribbon.meters ?? [], ribbon.began, ranks);
    const shown = state.isMeters ? there : [];
    scene = {
      ribbon, rows, curves, meters: shown, theme, ratio, end, isLog: state.isLog, sight: state.sight ?? [0, end],
      looks: history.length ? looksOf(history, ribbon.began) : [],
      epochs: history.length ? epochEnds(history, epochs, ribbon.began) : [],
      layout: runLayout(rows, over.clientWidth, curves.length > 0, shown.map(({ label }) => label)),
    };
    const context = sharpContext(canvas, scene.layout.width, scene.layout.height);
    paintRun(context, scene);
    if (state.range) {
      paintRange(context, scene, state.range, 0, scene.layout.axis);
      const [from, to] = scene.sight;
      for (const edge of state.range.filter((seconds) => seconds >= from && seconds <= to)) {
        context.fillRect(Math.round(xAt(scene, edge)), 0, 1, scene.layout.axis);
      }
    }
    paintPlayhead(context);
    log.hidden = curves.length === 0;
    log.setAttribute("aria-pressed", String(state.isLog));
    meters.hidden = there.length === 0;
    meters.setAttribute("aria-pressed", String(state.isMeters));
    whole.disabled = state.sight === null && state.range === null;
    const said = state.range ? rangeInWords(ribbon, state.range, end) : view.time_summary;
    setText(timeSummary, said);
    const label = [`The whole run on ${ranks} ranks, ${clock(end)}`, said, metersInWords(there), "Press ? for keys"];
    canvas.setAttribute("aria-label", `${label.filter(Boolean).join(". ")}.`);
    drawLegend(lettersIn(ribbon));
  }

  let legendOf = "";
  function drawLegend(letters) {
    if (letters.join("") === legendOf) return;
    legendOf = letters.join("");
    legend.replaceChildren(...letters.map((letter) => (
      entry(DOING[letter].words, DOING[letter].colour, "", "inherit", DOING[letter].line)
    )));
  }

  function paintPlayhead(context) {
    const x = playheadX();
    if (x === undefined) return;
    const { layout, theme } = scene;
    context.fillStyle = theme.text;
    context.fillRect(Math.round(x), 0, 1, layout.axis + 4);
    context.beginPath();
    context.moveTo(x - 5, layout.axis + 8);
    context.lineTo(x + 5, layout.axis + 8);
    context.lineTo(x, layout.axis + 1);
    context.fill();
  }

  /** undefined where there is no step, or where it is out of sight. */
  function playheadX() {
    const { at } = view.timeline;
    if (at === undefined || at < scene.sight[0] || at > scene.sight[1]) return undefined;
    return xAt(scene, at);
  }

  /** A time of the run: beside it, its begin or its end. */
  function timeAt(x) {
    return Math.max(0, Math.min(scene.end, secondsAt(scene, x)));
  }

  function hover(x, y) {
    const { layout, rows, ribbon, curves, end } = scene;
    const inside = x >= layout.plot.x && x <= layout.plot.x + layout.plot.width;
    const seconds = timeAt(x);
    canvas.style.cursor = isAtPlayhead(x, y) ? "ew-resize" : "";
    if (!inside) return words.hide();
    if (y < layout.curves) {
      const said = valuesInWords(curves, seconds);
      return said.length ? words.show([...said, clock(seconds)], x, 24) : words.hide();
    }
    if (y >= layout.below) {
      const meter = scene.meters[Math.floor((y - layout.meter.top) / layout.meter.row)];
      return meter ? words.show(meterInWords(meter, seconds), x, y - 4) : words.hide();
    }
    const row = rows[Math.floor((y - layout.top) / layout.row)];
    const found = row && row.ranks
      .map((rank) => [rank, entriesOf(ribbon.rows.find((one) => one[0] === rank) ?? [rank, "", []], end)
        .find((one) => seconds >= one.begin && seconds <= one.end)])
      .find(([, one]) => one);
    return found ? words.show(entryInWords(...found), x, y - 4) : words.hide();
  }

  function isAtPlayhead(x, y) {
    const at = playheadX();
    return (at !== undefined && Math.abs(x - at) <= NEAR) || y >= scene.layout.axis;
  }

  let dragged = null; // {x, isPlayhead} where it began
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !scene) return;
    canvas.setPointerCapture(event.pointerId);
    dragged = { x: event.offsetX, isPlayhead: isAtPlayhead(event.offsetX, event.offsetY) };
    words.hide();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!scene) return;
    if (!dragged) hover(event.offsetX, event.offsetY);
    else if (dragged.isPlayhead) lookAt({ which: "at", seconds: timeAt(event.offsetX) });
    else if (Math.abs(event.offsetX - dragged.x) > CLICK) {
      const range = [timeAt(dragged.x), timeAt(event.offsetX)].sort((a, b) => a - b);
      change({ range });
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const isClick = dragged && Math.abs(event.offsetX - dragged.x) <= CLICK;
    dragged = null;
    if (!isClick) return;
    change({ range: null });
    lookAt({ which: "at", seconds: timeAt(event.offsetX) });
  });
  canvas.addEventListener("pointercancel", () => { dragged = null; });
  canvas.addEventListener("pointerleave", words.hide);
  canvas.addEventListener("blur", words.hide);
  obeyWheel(canvas, { zoom: (factor, event) => zoom(factor, timeAt(event.offsetX)), shift });

  return {
    element,
    update(news) {
      view = news;
      element.hidden = !news.ribbon.rows?.length && !news.history.length;
      if (!element.hidden) draw();
    },
  };
}
