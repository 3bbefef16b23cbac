"""What a parser of argparse knows of its arguments, which argparse itself does not tell."""

from __future__ import annotations

from argparse import Action, ArgumentParser


def arguments(parser: ArgumentParser) -> list[Action]:
    """All, in the order in which they were added."""
    return parser._actions


def options(parser: ArgumentParser) -> dict[str, Action]:
    """By each name that may be typed for them: ``-n`` and ``--ranks``."""
    return {name: one for one in arguments(parser) for name in one.option_strings}


def positional(parser: ArgumentParser) -> list[Action]:
    """Those without a name."""
    return [one for one in arguments(parser) if not one.option_strings]
