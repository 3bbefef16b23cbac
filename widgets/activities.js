// What a rank may be doing over a run, by letters: those of tnt_notebook/telemetry/activities.py.

import activities from "../tnt_notebook/telemetry/activities.json" with { type: "json" };

export const DOING = Object.fromEntries(activities.map((doing) => [doing.letter, doing]));
