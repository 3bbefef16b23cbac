// The colours of the card as its theme has them: a canvas does not follow CSS.

const COLOURS_OF_THEME = ["text", "quiet", "line", "sunken", "back", "blue", "orange", "green", "pink", "sky"];

export function themeOf(element) {
  const style = getComputedStyle(element);
  const named = (name) => style.getPropertyValue(`--tnt-${name}`).trim();
  return { ...Object.fromEntries(COLOURS_OF_THEME.map((name) => [name, named(name)])), font: style.fontFamily };
}
