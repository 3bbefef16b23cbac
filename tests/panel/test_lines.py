"""What the form of the panel types is what ``%tnt_cluster start`` understands."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tnt_notebook.magics.cluster_magic import tnt_cluster
from tnt_notebook.magics.cluster_options import given
from tnt_notebook.magics.typed import words_of
from tnt_notebook.panel.overview import options_of_start

LINE = Path(__file__).parents[2] / "labextension/static/line.js"


def typed(values: dict[str, str]) -> str:
    """The line, as the browser makes it of what is written into the form."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed: the lines of the panel were not made")
    options = json.dumps(options_of_start()["options"])
    script = (
        f"import {{ line }} from '{LINE.as_uri()}';"
        f"console.log(line({options}, {json.dumps(values)}));"
    )
    done = subprocess.run(
        [node, "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


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
    assert typed(values) == f"%tnt_cluster start {line}".strip()
    words = words_of(f"start {line}")
    assert given(tnt_cluster.parser.parse_intermixed_args(words)) == options
