// Keys of a canvas, and the list of them that `?` shows.

import { make } from "./dom.js";

/**
 * Makes a canvas obey keys while it has the focus.
 *
 * keys: [[names, what, does], ...]: names as events say them, what they do in words, and the function, which
 * takes the event. Returns an element with the list, hidden until `?` is pressed.
 */
export function obeyKeys(canvas, keys) {
  const list = make("dl", "tnt-keys", { hidden: "" }, keys.flatMap(([names, what]) => [
    make("dt", "", {}, [names.map(keyName).join(" ")]), make("dd", "", {}, [what]),
  ]));
  const does = new Map(keys.flatMap(([names, , own]) => names.map((name) => [name, own])));
  does.set("?", () => { list.hidden = !list.hidden; });
  canvas.addEventListener("keydown", (event) => {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const own = !event.ctrlKey && !event.metaKey && !event.altKey && does.get(key);
    if (!own) return;
    event.preventDefault();
    event.stopPropagation();
    own(event);
  });
  return list;
}

const KEY_NAMES = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };

function keyName(key) {
  return KEY_NAMES[key] ?? key.toUpperCase();
}
