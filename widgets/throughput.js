// Samples per second: a line for each of a few ranks, a heat map over time for many.

import { heading, make, rankRow, setText, sharpContext, sparkline } from "./dom.js";
import { clock, count, rate } from "./format.js";
import { cividis, heatColumns, heatPixels, heatRows, heatSpan, rateOfRow } from "./heat.js";
import { curve, sinceMeasured } from "./history.js";
import { areaPath, extent, linePath } from "./layout.js";
import { tip } from "./tip.js";

const RANKS_WITH_A_LINE = 16;

/** The part of the card that says how fast ranks are. */
export function throughput(ranks) {
  const [top, total] = heading("Samples per second while training");
  const body = ranks <= RANKS_WITH_A_LINE ? rankLines(ranks) : heatMap(ranks);
  return {
    element: make("div", "tnt-throughput", {}, [top, body.element]),
    update(view) {
      const rates = view.frame.rates ?? [];
      const sum = rates.reduce((a, b) => a + b, 0) / view.frame.sharing; // a sample counts once
      setText(total, sinceMeasured(view.history).length ? `${rate(sum)} in all` : "");
      if (rates.length) body.update(view);
    },
  };
}

function rankLines(ranks) {
  const lines = Array.from({ length: ranks }, (_, rank) => {
    const spark = sparkline(["tnt-area", "tnt-curve"], [areaPath, linePath]);
    const value = make("span", "tnt-rate");
    return { element: rankRow(`rank ${rank}`, spark.element, value)[0], spark, value };
  });
  return {
    element: make("div", "tnt-ranks", { role: "list" }, lines.map(({ element }) => element)),
    update({ frame, history }) {
      const seconds = history.at(-1)?.elapsed ?? 0;
      const measured = sinceMeasured(history);
      const start = measured[0]?.elapsed ?? 0;
      const [, top] = extent(history.flatMap(({ rates }) => rates));
      lines.forEach(({ spark, value }, rank) => {
        const points = curve(measured, (point) => point.rates[rank]);
        spark.draw([points, points], { x: [start, seconds], y: [0, top || 1] });
        setText(value, measured.length ? rate(frame.rates[rank]) : "–");
      });
    },
  };
}

function heatMap(ranks) {
  const layout = heatRows(ranks);
  const canvas = make("canvas", "tnt-heat", { role: "img" });
  const over = make("div", "tnt-over", {}, [canvas]);
  const [first, last] = [make("span", ""), make("span", "")];
  const [low, high] = [make("span", ""), make("span", "")];
  const scale = make("span", "tnt-scale", { "aria-hidden": "true" }, [low, colourScale(), high]);
  const caption = make("div", "tnt-caption");
  const names = [make("span", "", {}, ["rank 0"]), make("span", "", {}, [`rank ${ranks - 1}`])];
  const words = tip(over);
  let points = [];
  let columns = [];
  canvas.addEventListener("pointermove", (event) => {
    const point = points[columns[Math.floor((event.offsetX / canvas.clientWidth) * columns.length)]];
    const row = Math.floor(event.offsetY / layout.height);
    if (!point || row < 0 || row >= layout.rows) return words.hide();
    const [from, to] = [row * layout.fold, Math.min(ranks, (row + 1) * layout.fold) - 1];
    const who = from === to ? `rank ${from}` : `ranks ${from} to ${to}, the slowest`;
    const value = `${rate(rateOfRow(point.rates, row, layout.fold))} samples/s at ${clock(point.elapsed)}`;
    return words.show([who, value], event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointerleave", words.hide);
  return {
    element: make("div", "tnt-strip", {}, [
      make("div", "tnt-map", {}, [
        make("div", "tnt-names", { "aria-hidden": "true" }, names), over,
        make("span", ""), make("div", "tnt-line tnt-caption", {}, [first, last]),
      ]),
      make("div", "tnt-line", {}, [caption, scale]),
    ]),
    update({ frame, history }) {
      const [slow, fast] = extent(frame.rates);
      const text = `slowest: rank ${frame.rates.indexOf(slow)}, ${rate(slow)}/s · `
        + `fastest: rank ${frame.rates.indexOf(fast)}, ${rate(fast)}/s`;
      setText(caption, text);
      canvas.setAttribute("aria-label", `samples per second of ${count(ranks)} ranks; ${text}`);
      points = sinceMeasured(history);
      const height = layout.rows * layout.height;
      const context = sharpContext(canvas, over.clientWidth, height);
      if (points.length === 0 || over.clientWidth === 0) return;
      columns = heatColumns(points, Math.min(points.length, Math.floor(over.clientWidth)));
      const span = heatSpan(points);
      const pixels = new ImageData(heatPixels(points, columns, layout, span), columns.length);
      drawPixels(context, pixels, over.clientWidth, height);
      setText(first, clock(points[0].elapsed));
      setText(last, clock(points.at(-1).elapsed));
      setText(low, `≤ ${rate(span[0])}`);
      setText(high, `≥ ${rate(span[1])}`);
    },
  };
}

function drawPixels(context, pixels, width, height) {
  const small = new OffscreenCanvas(pixels.width, pixels.height);
  small.getContext("2d").putImageData(pixels, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, width, height);
}

function colourScale() {
  const stops = Array.from({ length: 9 }, (_, i) => `rgb(${cividis(i / 8).join(" ")})`);
  return make("i", "tnt-colours", { style: `background: linear-gradient(to right, ${stops.join(", ")})` });
}
