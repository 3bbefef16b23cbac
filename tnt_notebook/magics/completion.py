"""Tab completion of what fits: actions, options and values from the magics' own parsers, variables,
ranks, clusters, runs and files; in cells for ranks, and after ``%tnt_pull``, what is there."""

from __future__ import annotations

import argparse
import glob
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

from tnt_notebook.choices import EXCHANGES, TRACKERS
from tnt_notebook.cluster.launch.options import OPTIONS
from tnt_notebook.magics import mesh_options
from tnt_notebook.magics import parser as parsers
from tnt_notebook.magics.actions import of
from tnt_notebook.magics.workloads import CELLS
from tnt_notebook.plan.network_file import names as network_names
from tnt_notebook.protocol import Call

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

#: Cells that run there.
_ON_RANKS = ("%%tnt", "%%tnt_fit", "%%tnt_sweep")
#: Options whose values are files or folders.
_PATHS = ("--checkpoint", "--hostfile", "--report", "--study", "--to")


class TntCompletion:
    """Completes the lines of a set of magics in one shell.

    Args:
        ranks: how many there are now.
        ask: calls a function of the first rank; None where there is none, or it is busy.
    """

    def __init__(
        self,
        shell: InteractiveShell,
        magics: dict[str, dict[str, Any]],
        ranks: Callable[[], int],
        ask: Callable[..., Any],
    ) -> None:
        self._shell, self._ranks, self._ask = shell, ranks, ask
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
        first, _, code = context.full_text.partition("\n")
        if context.cursor_line > 0 and (first.split() or [""])[0] in _ON_RANKS:
            return self._of_rank(code, context)
        command, *words = line.split() or [""]
        parser = self._parsers.get(command)
        if parser is None or (line.strip() == command and not line[-1].isspace()):
            return SimpleMatcherResult(completions=[], suppress=False)
        typed = "" if line[-1].isspace() else words.pop()
        completions = [
            SimpleCompletion(text, type=kind)  # which JupyterLab shows beside it
            for text, kind in self._candidates(command.lstrip("%"), parser, words, typed)
            if text.startswith(typed)
        ]
        return SimpleMatcherResult(completions=completions, suppress=True)

    def _of_rank(self, code: str, context: CompletionContext) -> SimpleMatcherResult:
        """In a cell for ranks: what lives there; where they are busy, what the notebook knows."""
        lines = code.splitlines(keepends=True)[: context.cursor_line - 1]
        place = len("".join(lines)) + context.cursor_position
        typed, names = self._ask(Call.COMPLETE, code, place) or ("", [])
        return SimpleMatcherResult(
            completions=[SimpleCompletion(name, type="rank") for name in names],
            matched_fragment=typed,
            suppress=bool(names),
        )

    def _candidates(
        self, magic: str, parser: argparse.ArgumentParser, before: list[str], typed: str
    ) -> list[tuple[str, str]]:
        """What may follow the words before the cursor, and of what kind it is."""
        options = parsers.options(parser)
        last = before[-1] if before else ""
        if last in options and options[last].nargs != 0:
            if last in _PATHS:
                return [(path, "path") for path in _paths(typed)]
            if last == "--network":
                values = [(name, "value") for name in network_names()]
                return values + [(path, "path") for path in _paths(typed)]
            if last == "--exchange":
                return [(name, "value") for name in EXCHANGES]
            if last == "--track":
                return [(name, "value") for name in TRACKERS]
            if last in ("--mesh", "--layout"):
                typed_so = mesh_options.candidates(last, typed, before)
                return [(value, "value") for value in typed_so]
            if last in ("--ranks", "--rank"):
                return self._numbers()
            return [(str(choice), "value") for choice in options[last].choices or ()]
        flags = [(flag, "option") for flag in _flags(magic, options, before)]
        if typed.startswith("-"):
            return flags
        if magic == "tnt_pull":
            names = self._ask(Call.VARIABLES) or []
            return [(name, "variable") for name in names if name not in before]
        if magic == "tnt_push":
            return self._variables(before)
        named: list[tuple[str, str]] = []
        if magic == "tnt_trace" and before:
            named = self._runs(before)
        elif len(before) == 1 and last in of(magic):
            named = self._whom(of(magic)[last].which)
        positional = parsers.positional(parser)
        choices = [str(choice) for action in positional for choice in action.choices or ()]
        if choices and not {*choices} & {*before}:
            return [*named, *((choice, "action") for choice in choices)]
        return [*named, *(flags if choices or not positional else [])]

    def _variables(self, before: list[str]) -> list[tuple[str, str]]:
        hidden = {*self._shell.user_ns_hidden, *before}
        names = [name for name in self._shell.user_ns if name[:1] != "_" and name not in hidden]
        return [(name, "variable") for name in names]

    def _whom(self, which: str) -> list[tuple[str, str]]:
        """What the second word of an action may be."""
        if which == "RANK":
            return self._numbers()
        if which == "WORKLOAD":
            return [(name, "workload") for name in [*self._fits(), *CELLS]]
        if which != "ID":
            return []
        from tnt_notebook.cluster.files import record

        return [(known.record.id, "cluster") for known in record.listed()]

    def _fits(self) -> list[str]:
        """Variables that are fits."""
        space = self._shell.user_ns
        return [name for name, kind in self._variables([]) if hasattr(space[name], "plot_timeline")]

    def _numbers(self) -> list[tuple[str, str]]:
        return [(str(rank), "rank") for rank in range(self._ranks())]

    @staticmethod
    def _runs(before: list[str]) -> list[tuple[str, str]]:
        """Runs, the latest first, where one may stand."""
        if before[0] == "list" or before[-1].startswith("--"):
            return []
        from tnt_notebook.telemetry import archive

        return [(run, "run") for run in reversed(archive.ids()) if run not in before]


def _flags(magic: str, options: dict[str, Any], before: list[str]) -> list[str]:
    """Options that may follow: of an action and a launcher that are named, those they go with."""
    again = {option.flag for option in OPTIONS.values() if option.repeated} | {"--layout"}
    fit = [flag for flag in options if flag not in before or flag in again]
    if action := next((word for word in before if word in of(magic)), None):
        fit = [flag for flag in fit if flag in of(magic)[action].flags]
    if magic == "tnt_cluster" and "--launcher" in before[:-1]:
        launcher = before[before.index("--launcher") + 1]
        others = {one.flag for one in OPTIONS.values() if launcher not in one.launchers}
        fit = [flag for flag in fit if flag not in others]
    return sorted(fit)


def _paths(typed: str) -> list[str]:
    """Files and folders whose names begin so."""
    beginning = os.path.expanduser(typed)
    found = sorted(glob.glob(f"{glob.escape(beginning)}*"))
    return [typed + path[len(beginning) :] + ("/" if os.path.isdir(path) else "") for path in found]
