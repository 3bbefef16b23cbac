"""What the panel types is what ``%tnt_cluster`` understands."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import in_node
from tnt_notebook.magics.action import check
from tnt_notebook.magics.cluster_actions import ACTIONS
from tnt_notebook.magics.cluster_magic import tnt_cluster
from tnt_notebook.magics.cluster_options import given
from tnt_notebook.magics.typed import words_of
from tnt_notebook.panel.overview import options_of_start

STATIC = Path(__file__).parents[2] / "labextension/static"


def given_by(function: str, module: str, *arguments: Any) -> Any:
    """What a function of the browser side gives."""
    return json.loads(
        in_node(
            f"import {{ {function} }} from '{(STATIC / module).as_uri()}';"
            f"console.log(JSON.stringify({function}(...{json.dumps(arguments)})));"
        )
    )


def understood(line: str) -> Namespace:
    """A line as the magic has it."""
    assert line.startswith("%tnt_cluster ")
    arguments = tnt_cluster.parser.parse_intermixed_args(words_of(line.split(" ", 1)[1]))
    check(tnt_cluster.parser, arguments, ACTIONS)
    return arguments


@pytest.mark.parametrize(
    ("values", "line", "options"),
    [
        ({"-n": "4", "--launcher": "local"}, "-n 4", {"ranks": 4}),
        ({"-n": "", "--gpus": "0"}, "--gpus 0", {"gpus": 0}),
        (
            # What is of a batch system alone is left out where the form does not show it.
            {"-n": "2", "--launcher": "local", "--time": "12h", "--preload": "keras"},
            "-n 2", {"ranks": 2},
        ),
        (
            {"-n": "8", "--launcher": "slurm", "--time": "12h",
             "--extra": "--qos=high\n--comment=a b", "--env": "K=two words\nL=\"x\" y"},
            '-n 8 --launcher slurm --time 12h --env "K=two words" --env \'L="x" y\' '
            '--extra=--qos=high --extra="--comment=a b"',
            {"ranks": 8, "launcher": "slurm", "time": "12h",
             "env": {"K": "two words", "L": '"x" y'}, "extra": ["--qos=high", "--comment=a b"]},
        ),
    ],
)  # fmt: skip
def test_a_form_types_what_start_understands(values, line, options):
    typed = given_by("line", "line.js", options_of_start()["options"], values)
    assert typed == f"%tnt_cluster start {line}"
    assert given(understood(typed)) == options


ALIVE, DEAD = {"state": "alive"}, {"state": "dead"}


@pytest.mark.parametrize(
    ("owned", "kept", "rows", "state", "lines"),
    [
        (True, True, [ALIVE, ALIVE], "ready", ["restart", "detach", "stop"]),
        (True, True, [DEAD, ALIVE], "1 dead", ["restart --missing", "restart", "detach", "stop"]),
        (False, True, [ALIVE], "ready", ["attach a1", "stop a1"]),
        (False, False, [DEAD], "lost", ["stop a1"]),
    ],
)
def test_buttons_type_what_the_magic_understands(owned, kept, rows, state, lines):
    cluster = {
        "id": "a1", "owned": owned, "kept": kept, "rows": rows,
        "here": True, "ready": True, "busy": False,
    }  # fmt: skip
    typed = [one["line"] for one in given_by("actions", "cluster.js", cluster)]
    assert typed == [f"%tnt_cluster {line}" for line in lines]
    for line in typed:
        understood(line)
    assert given_by("stateOf", "cluster.js", cluster) == state
