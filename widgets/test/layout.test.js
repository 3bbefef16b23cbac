import assert from "node:assert/strict";
import test from "node:test";

import { fractionDone } from "../layout.js";

test("the part done counts epochs and steps", () => {
  const at = (epoch, epochs, step, steps) => fractionDone({ epoch, epochs, step, steps });
  assert.equal(at(0, 5, 0, null), 0);
  assert.equal(at(1, 5, 50, 100), 0.1);
  assert.equal(at(5, 5, 100, 100), 1);
  assert.equal(at(2, 4, 7, null), 0.25);
  assert.equal(at(1, 1, 7, null), null);
});
