"""The magics whose first word is an action, and what each can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tnt_notebook.magics import bench_actions, cluster_actions
from tnt_notebook.magics.action import Action


@dataclass(frozen=True)
class Actions:
    """What a magic can do.

    Attributes:
        about: what the actions have in common, for the magic's help.
        by_name: in the order of the help.
    """

    about: str
    by_name: Mapping[str, Action]


OF: dict[str, Actions] = {
    "tnt_cluster": Actions(
        "starts, monitors and stops the ranks that cells run on", cluster_actions.ACTIONS
    ),
    "tnt_bench": Actions("measures what the running ranks can do", bench_actions.ACTIONS),
}

_NONE: Mapping[str, Action] = {}


def of(magic: str) -> Mapping[str, Action]:
    """The actions of a magic, by name; none where its first word is no action."""
    return OF[magic].by_name if magic in OF else _NONE
