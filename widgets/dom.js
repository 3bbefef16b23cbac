// Elements of the page, made and changed.

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
export function entry(words, colour, letter = "", ink = "inherit", isLine = false) {
  const box = make("i", isLine ? "tnt-stroke" : "tnt-letter", { style: `background: ${colour}; color: ${ink}` }, [letter]);
  return make("span", "", {}, [box, words]);
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
