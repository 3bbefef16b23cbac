// What both decks have in common: how time lies on their canvas, what is painted first, and the wheel.
//
// scene: {layout: {plot: {x, width}, width, height}, sight: [from, to] in seconds, theme}.

/** Where a time lies, in pixels. */
export function xAt({ layout: { plot }, sight: [from, to] }, seconds) {
  return plot.x + ((seconds - from) / (to - from)) * plot.width;
}

/** The time at a place; beyond the ends of what is in sight, too. */
export function secondsAt({ layout: { plot }, sight: [from, to] }, x) {
  return from + ((x - plot.x) / plot.width) * (to - from);
}

/** What is seen from so much of a time [0, end]; null for all of it. */
export function sightOf(range, end) {
  return range === null || range[1] - range[0] >= end * (1 - 1e-9) ? null : range;
}

/** An empty canvas, ready to write on. */
export function paintGround(context, { layout, theme }) {
  context.fillStyle = theme.back;
  context.fillRect(0, 0, layout.width, layout.height);
  context.font = `11px ${theme.font}`;
  context.textBaseline = "middle";
}

/** What is selected, as much of it as is in sight, from one height to another. */
export function paintRange(context, scene, range, top, bottom) {
  const { plot } = scene.layout;
  const [left, right] = range.map((seconds) => (
    Math.max(plot.x, Math.min(plot.x + plot.width, xAt(scene, seconds)))));
  context.fillStyle = scene.theme.text;
  context.globalAlpha = 0.12;
  context.fillRect(left, top, right - left, bottom - top);
  context.globalAlpha = 1;
}

/** With ctrl the wheel zooms by a factor, with shift it moves by a part of what is in sight; alone it scrolls the page. */
export function obeyWheel(canvas, { zoom, shift }) {
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    event.preventDefault();
    const by = event.deltaY || event.deltaX;
    if (event.shiftKey) shift(by / 500);
    else zoom(Math.exp(-Math.max(-60, Math.min(60, by)) / 150), event);
  }, { passive: false });
}
