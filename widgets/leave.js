// Leaves summary and figure in the notebook after a refresh.
//
// When a run ends, the kernel updates the two displays it made. A browser that was refreshed since no
// longer knows which outputs these displays were, and drops the updates; one that was closed never
// got them. So the card carries what is to be left, and whoever still shows the card puts it there.

const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";

/**
 * Replaces the card and its placeholder in the notebook that shows them, if one does.
 *
 * left: {model_id, placeholder, summary, figure}: which card it is, the text by which the placeholder is
 * known, and two MIME bundles. cells: the notebook's cells, where the front end lets widgets see them
 * (JupyterLab and Notebook do).
 */
export function leaveBehind(left, cells) {
  for (const cell of cells ?? []) {
    const { outputs } = cell;
    if (!outputs) continue; // not a code cell
    const card = indexOf(outputs, 0, (data) => data[WIDGET_VIEW]?.model_id === left.model_id);
    if (card < 0) continue;
    const place = indexOf(outputs, card, (data) => textOf(data) === left.placeholder);
    if (place >= 0) outputs.set(place, display(left.figure));
    outputs.set(card, display(left.summary));
  }
}

/**
 * Has this card take the place of one that another kernel has begun, and that is dead since: one view of a run
 * is enough.
 *
 * text: what such a card shows where there are no widgets.
 */
export function takeOver(text, ownId, cells) {
  for (const cell of cells ?? []) {
    const { outputs } = cell;
    if (!outputs) continue;
    const isOther = (data) => data[WIDGET_VIEW] && data[WIDGET_VIEW].model_id !== ownId && textOf(data) === text;
    const card = indexOf(outputs, 0, isOther);
    if (card >= 0) outputs.set(card, display({ "text/plain": `${text}, from another kernel: see where it was attached` }));
  }
}

function indexOf(outputs, start, matches) {
  for (let index = start; index < outputs.length; index += 1) {
    if (matches(outputs.get(index).data ?? {})) return index;
  }
  return -1;
}

function textOf(data) {
  return [data["text/plain"] ?? ""].flat().join("");
}

function display(data) {
  return { output_type: "display_data", data, metadata: {} };
}
