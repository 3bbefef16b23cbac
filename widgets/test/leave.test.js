import assert from "node:assert/strict";
import test from "node:test";

import { leaveBehind } from "../leave.js";

const LEFT = {
  model_id: "m", placeholder: "figure to come",
  summary: { "text/plain": "summary" }, figure: { "text/plain": "figure" },
};
const CARD = { data: { "application/vnd.jupyter.widget-view+json": { model_id: "m" } } };
const OTHER = { data: { "application/vnd.jupyter.widget-view+json": { model_id: "n" } } };
const PLACE = { data: { "text/plain": ["figure ", "to come"] } };

/** The part of a front end's output model that is used. */
function outputs(...items) {
  return {
    get length() { return items.length; },
    get: (index) => items[index],
    set: (index, item) => { items[index] = item; },
    texts: () => items.map(({ data }) => data?.["text/plain"]),
  };
}

test("the card and its placeholder are replaced, nothing else", () => {
  const here = outputs(PLACE, OTHER, {}, CARD, { data: { "text/plain": "printed" } }, PLACE);
  leaveBehind(LEFT, [{}, { outputs: here }]);
  const kept = PLACE.data["text/plain"];
  assert.deepEqual(here.texts(), [kept, undefined, undefined, "summary", "printed", "figure"]);
});

test("a second time, or where no card is, nothing happens", () => {
  const here = outputs(CARD, PLACE);
  leaveBehind(LEFT, [{ outputs: here }]);
  leaveBehind({ ...LEFT, summary: { "text/plain": "again" } }, [{ outputs: here }]);
  assert.deepEqual(here.texts(), ["summary", "figure"]);
  leaveBehind(LEFT, undefined);
});
