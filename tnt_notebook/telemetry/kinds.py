"""The kinds of events: one table, ``kinds.json``, for C++, Python and the browser.

A row is an event that the backend records; its place in the table is its number in a trace. Rows
with a letter are boxes of the timeline, too. CMake makes ``engine/event_kind.h`` of the table, and
``widgets/kinds.js`` imports it. A new kind of box is a row here and the code that records it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Kind:
    """A row of the table.

    Attributes:
        event: what it is called in C++, and by ``tnt_notebook.comm.ops.clock``.
        meaning: from when to when, for the reader of the table.
        letter: of its boxes; empty where an event is not drawn as such.
        words: what the legend calls it.
        detail: what a box is, with its ``{stage}`` and ``{number}``.
        role: ``action`` of a pipeline, with a stage and a micro-batch; other ``work``; a ``wait``;
            or what goes on ``beside`` these, which has a lane of its own.
        stage, number: what these two numbers of a box mean, as names in exports; empty where they
            mean nothing.
        colour: Okabe and Ito's mostly.
        ink: colour of words on it; ``None``: that of the text around.
        below: whether other boxes of its lane may lie over it.
    """

    event: str
    meaning: str
    letter: str = ""
    words: str = ""
    detail: str = ""
    role: Literal["action", "work", "wait", "beside", ""] = ""
    stage: str = ""
    number: str = ""
    colour: str = ""
    ink: str | None = None
    below: bool = False


#: All kinds by their numbers.
KINDS = tuple(
    Kind(**row) for row in json.loads(Path(__file__).with_name("kinds.json").read_bytes())
)
#: The kinds of boxes by their letters, in the order of a legend.
BOX_KINDS = {kind.letter: kind for kind in KINDS if kind.letter}


def letters(*roles: str) -> str:
    """Those of the boxes that have one of these roles."""
    return "".join(kind.letter for kind in BOX_KINDS.values() if kind.role in roles)
