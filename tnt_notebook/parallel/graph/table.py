"""The rules: for each kind of op, what it makes of what ranks have. Where there is none, or it
gives None, an op gets its inputs whole, and all ranks compute the same: exact, and slow."""

from __future__ import annotations

from collections.abc import Callable

from tnt_notebook.parallel.graph.node import Decision, Node

Rule = Callable[[Node], Decision | None]

RULES: dict[str, Rule] = {}


def rule(*types: str) -> Callable[[Rule], Rule]:
    """Makes a function the rule of some kinds of ops.

    Args:
        types: as ``tf.Operation.type`` has them.
    """

    def keep(function: Rule) -> Rule:
        for each in types:
            if each in RULES:
                raise ValueError(f"{each} has a rule already: {RULES[each].__name__}")
            RULES[each] = function
        return function

    return keep
