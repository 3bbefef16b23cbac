"""Where the figures of fits are logged, as it is typed: ``mlflow``, or
``tensorboard:runs,wandb``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tnt_notebook.choices import TRACKERS
from tnt_notebook.words import meant


@dataclass(frozen=True)
class Track:
    """Trackers, and what their runs are called.

    Attributes:
        to: names of trackers, each with its folder; "" is where the tracker keeps runs by itself.
        group: of runs that belong together, such as the trials of a sweep; "" is none.
        name: of the run; "": the tracker's runs are named by the time.
        parameters: beside those of the fit.
    """

    to: tuple[tuple[str, str], ...]
    group: str = ""
    name: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, said: Track | Mapping[str, Any] | str) -> Track:
        """What is typed, or plain data: fields by their names, ``to`` as it is typed.

        Raises:
            ValueError: there is no such tracker, or it is named twice.
        """
        if isinstance(said, Track):
            return said
        fields = {"to": said} if isinstance(said, str) else said
        return cls(**{**fields, "to": _parsed(fields["to"])})


def _parsed(text: str) -> tuple[tuple[str, str], ...]:
    found = {}
    for one in text.split(","):
        name, colon, folder = one.strip().partition(":")
        if name not in TRACKERS:
            near = meant(name, {known: known for known in TRACKERS}) or "."
            raise ValueError(f"No tracker {name!r}{near} track is of {', '.join(TRACKERS)}.")
        if name in found:
            raise ValueError(f"track names {name} twice; a fit is logged there once")
        if colon and not folder:
            raise ValueError(f"track names no folder after {name}:")
        found[name] = folder
    return tuple(found.items())
