// Elements of a page, made and kept.

/** An element: its attributes, of which functions are listeners, and what is in it. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Makes the children of a node those of `items`; what is there already stays, with its focus. */
export function keep(node, items, key, make, update) {
  const there = new Map([...node.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, place) => {
    const name = String(key(item));
    let child = there.get(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    there.delete(name);
    if (node.children[place] !== child) node.insertBefore(child, node.children[place] ?? null);
    update(child, item);
  });
  for (const gone of there.values()) gone.remove();
}

/** Sets a text, where it has changed. */
export function tell(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
