// Elements of the page, made and changed.

import { linePath } from "./layout.js";

const SPARK = { width: 100, height: 24 };

/** An element with its class, attributes and children. */
export function make(tag, className, attributes = {}, children = []) {
  const element = document.createElement(tag);
  element.className = className;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A button with its words, and what it does. */
export function button(className, words, onClick, attributes = {}) {
  const element = make("button", className, { type: "button", ...attributes }, [words]);
  element.addEventListener("click", onClick);
  return element;
}

/** Says something else, if it is something else: a live region would say the same twice. */
export function setText(element, text = "") {
  if (element.textContent !== text) element.textContent = text;
}

/** What a part of the card shows, and a place for its sum: [element, sum]. */
export function heading(words) {
  const sum = make("span", "tnt-total");
  return [make("div", "tnt-line tnt-heading", {}, [make("span", "", {}, [words]), sum]), sum];
}

/** A rank in a list: [element, name]. */
export function rankRow(words, middle, right) {
  const name = make("span", "tnt-rank-name", {}, [words]);
  return [make("div", "tnt-rank", { role: "listitem" }, [name, middle, right]), name];
}

/** What a colour means, for a legend. */
export function entry(words, colour, letter = "", ink = "inherit") {
  const box = make("i", "tnt-letter", { style: `background: ${colour}; color: ${ink}` }, [letter]);
  return make("span", "", {}, [box, words]);
}

/** Curves of a class and a shape each, without axes; `draw` takes the points of each. */
export function sparkline(classes, shapes = classes.map(() => linePath)) {
  const svg = makeSvg("svg", {
    class: "tnt-spark", viewBox: `0 0 ${SPARK.width} ${SPARK.height}`,
    preserveAspectRatio: "none", "aria-hidden": "true",
  });
  const paths = classes.map((name) => makeSvg("path", { class: name }));
  svg.append(...paths);
  return {
    element: svg,
    draw(curves, range) {
      paths.forEach((path, index) => path.setAttribute("d", shapes[index](curves[index], SPARK, range)));
    },
  };
}

/** A canvas as sharp as the screen: `width` and `height` in CSS pixels; returns its context. */
export function sharpContext(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

function makeSvg(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
