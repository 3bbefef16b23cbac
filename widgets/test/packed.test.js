import assert from "node:assert/strict";
import test from "node:test";
import { deflateSync } from "node:zlib";

import { unpacked } from "../packed.js";

test("what the kernel deflated is read", async () => {
  const bytes = deflateSync(JSON.stringify({ idle: [0.25], planned: null }));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  assert.deepEqual(await unpacked({ deflated: view }), { idle: [0.25], planned: null });
});

test("nothing is nothing", async () => {
  assert.deepEqual(await unpacked({}), {});
});
