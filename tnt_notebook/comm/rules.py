"""Which algorithm a collective uses: a table of rules, of which the first that matches counts.

The backend has rules of its own (:func:`default`). Measurements (:mod:`tnt_notebook.comm.tuning`)
may leave better ones for a cluster in a file, which stand before them::

    {
      "rules": [
        {"collective": "allreduce", "algorithm": "recursive_doubling", "up_to_bytes": 8192,
         "nodes": "one", "min_ranks": 4, "max_ranks": 4, "in_place": false},
        {"collective": "allreduce", "algorithm": "direct", "nodes": "one",
         "min_ranks": 4, "max_ranks": 4, "in_place": false}
      ]
    }

The file is ``tnt_notebook/rules.json`` in the user's folder of configuration, or what the
environment variable ``TNT_RULES`` names; with ``TNT_RULES=`` (empty) none is read.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from tnt_notebook.comm import _kernels, schedules
from tnt_notebook.comm.communicator import Communicator
from tnt_notebook.comm.numbers import COLLECTIVES
from tnt_notebook.errors import RulesError

#: Names the file of rules; empty: none is read.
VARIABLE = "TNT_RULES"
NODES = ("any", "one", "many")


@dataclass(frozen=True)
class Rule:
    """For which collectives an algorithm is taken; one that does not fit the ranks is passed over.

    Attributes:
        collective: one of ``tnt_notebook.comm.numbers.COLLECTIVES``.
        algorithm: one of :func:`tnt_notebook.comm.schedules.names` of it.
        up_to_bytes: of the whole vector; ``None``: any size.
        nodes: whether the ranks are on ``"one"`` node, on ``"many"``, or ``"any"``.
        min_ranks, max_ranks: how many ranks there are; ``None``: any number.
        in_place: whether the memory is a bucket; ``None``: either.
        measured: where and when it was found to be so, for people to read.
    """

    collective: str
    algorithm: str
    up_to_bytes: int | None = None
    nodes: str = "any"
    min_ranks: int = 1
    max_ranks: int | None = None
    in_place: bool | None = None
    measured: str = ""

    @property
    def case(self) -> tuple[Any, ...]:
        """What the rule is for, but for the size: rules of one case are measured together."""
        return self.collective, self.nodes, self.min_ranks, self.max_ranks, self.in_place


_FIELDS = tuple(field.name for field in dataclasses.fields(Rule))
_limits = attrgetter("up_to_bytes", "nodes", "min_ranks", "max_ranks", "in_place")


def path() -> Path | None:
    """The file of rules, whether it is there or not; ``None`` where none is wanted."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named).expanduser().absolute() if named else None
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # XDG: a path that is not absolute does not count.
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return folder / "tnt_notebook" / "rules.json"


def saved() -> list[Rule]:
    """The rules of the file; none where there is no file.

    Raises:
        RulesError: the file cannot be read, or says something that cannot be; it names the entry.
    """
    file = path()
    if file is None:
        return []
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        if VARIABLE not in os.environ:
            return []
        raise RulesError(f"{VARIABLE} names {file}, which is not there.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RulesError(f"{file} cannot be read: {error}") from None
    return parsed(text, str(file))


def default() -> list[Rule]:
    """The rules of the backend, which stand behind those of the file."""
    return [
        Rule(COLLECTIVES[rule.collective], rule.algorithm, *_limits(rule))
        for rule in _kernels.default_rules()
    ]


def parsed(text: str, file: str) -> list[Rule]:
    """The rules in the text of a file.

    Raises:
        RulesError: it names the file, and the line or the entry.
    """
    try:
        table = json.loads(text)
    except json.JSONDecodeError as error:
        raise RulesError(f"{file}, line {error.lineno}: {error.msg}. {_remedy(file)}") from None
    entries = table.get("rules") if isinstance(table, dict) else None
    if not isinstance(entries, list):
        raise RulesError(f'{file} has no list of "rules". {_remedy(file)}')
    rules = []
    for number, entry in enumerate(entries, start=1):
        problem = _problem(entry)
        if problem:
            raise RulesError(f"{file}, rule {number}: {problem}. {_remedy(file)}")
        rules.append(Rule(**entry))
    return rules


def save(rules: Sequence[Rule]) -> Path:
    """Puts rules before those of the file, in place of those for the same case.

    Returns:
        The file.

    Raises:
        RulesError: the file is broken, cannot be written, or is not wanted.
    """
    file = path()
    if file is None:
        raise RulesError(f"{VARIABLE} is empty, so there is no file to save rules in.")
    new = {rule.case for rule in rules}
    kept = [rule for rule in saved() if rule.case not in new] if file.exists() else []
    text = _text([*rules, *kept])
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f"{file.name}.{os.getpid()}")  # a reader sees the old or the new
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        raise RulesError(f"{file} cannot be written: {error}") from None
    return file


def agreed(over: Communicator) -> list[Rule]:
    """The saved rules as rank 0 reads them, on all ranks. Collective.

    Raises:
        RulesError: as :func:`saved`, on all ranks.
    """
    answer: dict[str, Any] = {}
    if over.rank == 0:
        try:
            answer = {"rules": [dataclasses.asdict(rule) for rule in saved()]}
        except RulesError as error:
            answer = {"error": str(error)}
    answer = json.loads(over.broadcast_bytes(json.dumps(answer).encode()))
    if "error" in answer:
        raise RulesError(answer["error"])
    return [Rule(**entry) for entry in answer["rules"]]


def for_engine(rules: Iterable[Rule]) -> list[_kernels.Rule]:
    """Rules, and the defaults behind them, as the backend takes them."""
    own = [
        _kernels.Rule(COLLECTIVES.index(rule.collective), rule.algorithm, *_limits(rule))
        for rule in rules
    ]
    return [*own, *_kernels.default_rules()]


def _problem(entry: Any) -> str:
    """What is wrong with an entry of the file, or nothing."""
    if not isinstance(entry, dict):
        return f"{json.dumps(entry)} is not a rule"
    unknown = [name for name in entry if name not in _FIELDS]
    if unknown:
        return f"{unknown[0]!r} is not one of {', '.join(_FIELDS)}"
    for name, known in (("collective", COLLECTIVES), ("nodes", NODES)):
        if name in entry and entry[name] not in known:
            return f"{name} {entry[name]!r} is not one of {', '.join(known)}"
    for name in ("collective", "algorithm"):
        if name not in entry:
            return f"{name!r} is missing"
    names = schedules.names(entry["collective"])
    if entry["algorithm"] not in names:
        what = f"algorithm {entry['algorithm']!r} of {entry['collective']}"
        return f"{what} is not one of {', '.join(names)}"
    for name, least in (("up_to_bytes", 0), ("min_ranks", 1), ("max_ranks", 1)):
        value = entry.get(name, least)
        may_be_none = name != "min_ranks" and value is None
        if not may_be_none and (type(value) is not int or not least <= value < _LIMIT[name]):
            return f"{name} {json.dumps(value)} is not a whole number of {least} or more"
    if not isinstance(entry.get("measured", ""), str):
        return f"measured {json.dumps(entry['measured'])} is not a text"
    if entry.get("in_place") not in (None, True, False) or type(entry.get("in_place")) is int:
        return f"in_place {json.dumps(entry['in_place'])} is neither true nor false"
    return ""


#: What the backend's numbers hold.
_LIMIT = {"up_to_bytes": 2**63, "min_ranks": 2**31, "max_ranks": 2**31}


def _remedy(file: str) -> str:
    return f"Mend or remove it; {VARIABLE}= (empty) goes on without it."


def _text(rules: Sequence[Rule]) -> str:
    """JSON with a line for each rule, without what is not restricted."""
    lines = []
    for rule in rules:
        values = dataclasses.asdict(rule).items()
        said = {name: value for name, value in values if value not in (None, "any", "")}
        lines.append(f"    {json.dumps(said)}")
    joined = ",\n".join(lines)
    return f'{{\n  "rules": [\n{joined}\n  ]\n}}\n'
