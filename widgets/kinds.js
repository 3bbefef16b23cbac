// The kinds of boxes by their letters: those of tnt_notebook/telemetry/kinds.py.

import table from "../tnt_notebook/telemetry/kinds.json" with { type: "json" };

export const KINDS = Object.fromEntries(table.filter(({ letter }) => letter).map((kind) => [kind.letter, kind]));
