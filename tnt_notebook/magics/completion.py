"""Tab completion of subcommands, flags and variable names, from the magics' own parsers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class TntCompletion:
    """Completes the lines of a set of magics in one shell."""

    def __init__(self, shell: InteractiveShell, magics: dict[str, dict[str, Any]]) -> None:
        self._shell = shell
        self._parsers: dict[str, argparse.ArgumentParser] = {}
        for name, magic in magics["line"].items():
            # IPython runs line magics without their percent sign as well.
            self._parsers |= {f"%{name}": magic.parser, name: magic.parser}
        for name, magic in magics["cell"].items():
            self._parsers[f"%%{name}"] = magic.parser

    def install(self) -> None:
        self._shell.Completer.custom_matchers.append(self.match)

    def remove(self) -> None:
        self._shell.Completer.custom_matchers.remove(self.match)

    @context_matcher()
    def match(self, context: CompletionContext) -> SimpleMatcherResult:
        """What may stand at the cursor; instead of names of Python, which cannot stand there."""
        line = context.line_with_cursor[: context.cursor_position]
        command, *words = line.split() or [""]
        parser = self._parsers.get(command)
        if parser is None or (line.strip() == command and not line[-1].isspace()):
            return SimpleMatcherResult(completions=[], suppress=False)
        typed = "" if line[-1].isspace() else words.pop()
        candidates = _candidates(parser, words, typed)
        if not candidates and command.lstrip("%") == "tnt_push":
            hidden = {*self._shell.user_ns_hidden, *words}
            names = [name for name in self._shell.user_ns if name[:1] != "_"]
            candidates = [name for name in names if name not in hidden]
        if command.lstrip("%") == "tnt_trace" and words and typed[:1] != "-":
            candidates = self._runs(words) + candidates
        if command.lstrip("%") == "tnt_cluster" and words in (["attach"], ["stop"]):
            from tnt_notebook.cluster import record

            candidates = [*(known.record.id for known in record.listed()), *candidates]
        completions = [SimpleCompletion(text) for text in candidates if text.startswith(typed)]
        return SimpleMatcherResult(completions=completions, suppress=True)

    @staticmethod
    def _runs(words: list[str]) -> list[str]:
        """Ids of runs, the latest first, where one may stand."""
        if words[0] == "list" or words[-1].startswith("--"):
            return []
        from tnt_notebook.telemetry import archive

        return [run for run in reversed(archive.ids()) if run not in words]


def _candidates(parser: argparse.ArgumentParser, before: list[str], typed: str) -> list[str]:
    """What may follow the words before the cursor."""
    options = parser._option_string_actions
    if before and before[-1] in options and options[before[-1]].nargs != 0:
        return [str(choice) for choice in options[before[-1]].choices or ()]
    flags = sorted(flag for flag in options if flag not in before)
    if typed.startswith("-"):
        return flags
    choices = [
        str(choice)
        for action in parser._get_positional_actions()
        for choice in action.choices or ()
    ]
    if choices and not set(choices) & set(before):
        return choices
    return flags if choices or not parser._get_positional_actions() else []
