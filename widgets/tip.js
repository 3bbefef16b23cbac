// A few words beside the pointer, or beside what the keyboard has selected.

import { make, setText } from "./dom.js";

/** Lies over a positioned element `over`; `show` takes lines and a place in it, in pixels. */
export function tip(over) {
  const element = make("div", "tnt-tip", { hidden: "", "aria-hidden": "true" });
  over.append(element);
  return {
    show(lines, x, y) {
      while (element.children.length < lines.length) element.append(make("div", ""));
      [...element.children].forEach((line, index) => setText(line, lines[index]));
      element.hidden = false;
      const [width, height] = [element.offsetWidth, element.offsetHeight];
      const left = Math.max(0, Math.min(x - width / 2, over.clientWidth - width));
      const above = y - height - 10;
      element.style.left = `${left}px`;
      element.style.top = `${above > -40 ? above : y + 18}px`;
    },
    hide() {
      element.hidden = true;
    },
    isShown() {
      return !element.hidden;
    },
  };
}
