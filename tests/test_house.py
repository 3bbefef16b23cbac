"""Who knows whom, read from the sources: imports of the package, includes of the kernels.

All imports count, also those inside functions and under ``TYPE_CHECKING``. A room is a folder; the
files beside them, such as ``errors.py``, may be known by all and know each other alone.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

CHECKOUT = Path(__file__).parents[1]

#: Whom each room may know; and, through them, those whom they may know.
ROOMS = {
    "magics": ("cluster", "dashboard", "jupyter", "plan", "sweep", "telemetry"),
    "cluster": ("dashboard", "jupyter", "sweep", "telemetry", "warden"),
    "dashboard": ("jupyter", "plan", "sweep", "telemetry"),
    "panel": ("cluster", "telemetry", "warden"),
    "engine": ("jupyter", "parallel", "warden"),
    "parallel": ("comm", "keras", "plan", "telemetry"),
    **dict.fromkeys(("comm", "jupyter", "keras", "plan", "sweep", "telemetry", "warden"), ()),
}

#: Single files of another room that a room may know.
FILES = {
    ("comm", "telemetry.events"),  # which number each kind of event has
    ("comm", "telemetry.exchanges"),  # what goes over a channel
    ("comm", "keras.tensorflow"),  # how it traces
}

#: The same for C++: the way of an operation down to the bytes.
KERNELS = {
    "tensorflow": ("engine",),
    "python": ("engine", "checker"),
    "engine": ("collective", "elements", "transport"),
    "checker": ("collective",),
    **dict.fromkeys(("collective", "elements", "transport", "guard"), ()),
}

#: What does not hold yet, and why: (who, whom). Nothing is to be added; what holds goes.
NOT_YET = {
    ("cluster.handles.trained_model", "keras"): "registers our layers before a model is read"
}

#: Folders that know each other both ways, where one should be below the other. Nothing is to be
#: added; what holds goes.
BOTH_WAYS = {
    ("parallel.data", "parallel.data.readers"),
    ("parallel.graph", "parallel.graph.rules"),
    ("parallel.layers", "parallel.layers.rules"),
}

#: Lines of a file, and those of the files that have more. Nothing is to be added, and none grows.
MOST_LINES = 300
LONG = {
    "cluster/requests/engines.py": 409,
    "cluster/requests/execution.py": 350,
    "cluster/handles/fit.py": 383,
    "cluster/life/ranks.py": 362,
    "comm/communicator.py": 359,
    "comm/ops.py": 509,
    "parallel/data/sharded_pipeline.py": 318,
    "parallel/data/readers/staging.py": 322,
    "parallel/training/compiled_functions.py": 336,
    "parallel/graph/emission.py": 465,
    "parallel/graph/sizes.py": 314,
    "parallel/layers/choose.py": 322,
    "parallel/layers/rule.py": 376,
    "parallel/layers/weight_blocks.py": 361,
    "parallel/observe/step_sampler.py": 344,
    "parallel/pipeline/ending.py": 338,
    "parallel/pipeline/stage.py": 303,
    "parallel/pipeline/steps.py": 389,
    "parallel/step/replicas.py": 306,
    "parallel/step/weights.py": 351,
    "telemetry/recorder.py": 310,
}


class Use(NamedTuple):
    """A line that makes a file depend on another; both named as a reader would."""

    user: str
    used: str
    line: str

    def __str__(self) -> str:
        return f"{self.line}: {self.user} knows {self.used}"


def imports(checkout: Path) -> list[Use]:
    """What modules of the package import of it, without ``tnt_notebook.`` before their names.

    Left out is what the package itself gives by name: ``tnt_notebook/__init__.py``.
    """
    package = checkout / "tnt_notebook"
    paths = [*package.rglob("*.pyi"), *package.rglob("*.py")]
    files = {_name(path, package): path for path in paths}
    return [
        Use(user, used, f"{path.relative_to(checkout)}:{line}")
        for user, path in sorted(files.items())
        if user and path.suffix == ".py"
        for used, line in _imports(path, files)
    ]


def includes(checkout: Path) -> list[Use]:
    """What files of the kernels include, but for their tests."""
    kernels = checkout / "kernels"
    return [
        Use(str(path.relative_to(kernels)), match[1], f"{path.relative_to(checkout)}:{number}")
        for path in sorted(kernels.rglob("*.[hc]*"))
        if path.relative_to(kernels).parts[0] != "test"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := re.match(r'#include "(.*)"', line))
    ]


def strangers(uses: list[Use], rooms: Mapping[str, tuple[str, ...]], separator: str) -> list[Use]:
    """Uses between rooms that may not know each other."""
    may_know = {room: _reach(room, rooms) for room in rooms}

    def room(name: str) -> str:
        first, inside, _ = name.partition(separator)
        return first if inside or first in rooms else ""

    return [
        use
        for use in uses
        if (mine := room(use.user)) != (other := room(use.used))
        and (other or not use.used)
        and other not in may_know.get(mine, ())
        and (mine, use.used) not in FILES
    ]


def a_circle(uses: list[Use]) -> list[Use]:
    """Files each of which needs the next, and the last the first; empty where there are none."""
    needs: dict[str, set[str]] = {}
    for use in uses:
        needs.setdefault(use.user, set()).add(use.used)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        around = error.args[1]  # each is needed by the next
        found = {(use.user, use.used): use for use in uses}
        return [found[user, used] for used, user in pairwise(around)]
    return []


@pytest.fixture(scope="module")
def every_use() -> list[Use]:
    if not (CHECKOUT / "tnt_notebook/comm/_kernels.pyi").exists():
        pytest.fail("build first: make setup", pytrace=False)
    return imports(CHECKOUT)


@pytest.fixture
def uses(every_use: list[Use]) -> list[Use]:
    """Those of the package, but for known exceptions."""
    return [use for use in every_use if (use.user, use.used) not in NOT_YET]


def test_rooms_know_whom_they_may_know(uses):
    assert not strangers(uses, ROOMS, "."), _lines(strangers(uses, ROOMS, "."))


def test_no_file_needs_itself_through_others(uses):
    assert not a_circle(uses), _lines(a_circle(uses))


def test_folders_know_each_other_one_way(every_use):
    known = {(_folder(use.user), _folder(use.used)) for use in every_use}
    both = {(a, b) for a, b in known if a < b and (b, a) in known}
    assert both == BOTH_WAYS, f"more: {both - BOTH_WAYS}; mended: {BOTH_WAYS - both}"


def test_a_file_is_short():
    package = CHECKOUT / "tnt_notebook"
    lines = {
        str(path.relative_to(package)): len(path.read_text(encoding="utf-8").splitlines())
        for path in package.rglob("*.py")
    }
    long = {name: count for name, count in lines.items() if count > MOST_LINES}
    grown = {name: count for name, count in long.items() if count > LONG.get(name, 0)}
    assert not grown, f"Divide them by ideas: {grown}"
    assert long.keys() == LONG.keys(), f"short now: {LONG.keys() - long.keys()}"


def test_the_backend_is_known_to_comm_alone(uses):
    others = [u for u in uses if u.used == "comm._kernels" and not u.user.startswith("comm.")]
    assert not others, _lines(others)


def test_kernels_know_whom_they_may_know():
    uses = includes(CHECKOUT)
    assert not strangers(uses, KERNELS, "/"), _lines(strangers(uses, KERNELS, "/"))
    assert not a_circle(uses), _lines(a_circle(uses))


def test_exceptions_are_gone_when_they_are_mended(every_use):
    mended = NOT_YET.keys() - {(use.user, use.used) for use in every_use}
    assert not mended, f"They hold now: take them out of NOT_YET: {sorted(mended)}"


def test_what_is_wrong_is_named_by_file_and_line(tmp_path):
    files = {
        "tnt_notebook/plan/schedule.py": "def make():\n    from tnt_notebook import comm\n",
        "tnt_notebook/comm/__init__.py": "from tnt_notebook.comm.world import World\n",
        "tnt_notebook/comm/world.py": "if TYPE_CHECKING:\n    import tnt_notebook.comm\n",
        "kernels/transport/mpi.h": '#pragma once\n#include "engine/engine.h"\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = imports(tmp_path)
    assert list(map(str, strangers(found, ROOMS, "."))) == [
        "tnt_notebook/plan/schedule.py:2: plan.schedule knows comm"
    ]
    assert sorted(use.line for use in a_circle(found)) == [
        "tnt_notebook/comm/__init__.py:1",
        "tnt_notebook/comm/world.py:2",
    ]
    assert list(map(str, strangers(includes(tmp_path), KERNELS, "/"))) == [
        "kernels/transport/mpi.h:2: transport/mpi.h knows engine/engine.h"
    ]


def _lines(uses: list[Use]) -> str:
    return "\n" + "\n".join(map(str, uses))


def _name(path: Path, package: Path) -> str:
    """``comm.world`` of ``comm/world.py``, ``comm`` of its ``__init__.py``; "" of the package."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _folder(name: str) -> str:
    is_folder = CHECKOUT.joinpath("tnt_notebook", *name.split(".")).is_dir()
    return name if is_folder else name.rpartition(".")[0]


def _imports(path: Path, files: Mapping[str, Path]) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names):
                wanted = [name.name for name in names]
            case ast.ImportFrom(module, names, 0):
                inside = [f"{module}.{name.name}" for name in names]
                wanted = [n if n.removeprefix("tnt_notebook.") in files else module for n in inside]
            case _:
                continue
        for name in dict.fromkeys(wanted):
            if name.split(".")[0] == "tnt_notebook":
                yield name.partition(".")[2], node.lineno


def _reach(room: str, rooms: Mapping[str, tuple[str, ...]]) -> set[str]:
    return {room}.union(*(_reach(other, rooms) for other in rooms[room]))
