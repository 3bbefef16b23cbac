"""Defaults of a site and a person: where they are found, who has the last word, broken files."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tnt_notebook.cluster import Cluster
from tnt_notebook.cluster.launch import defaults
from tnt_notebook.cluster.launch.options import Request
from tnt_notebook.cluster.launch.request import asked
from tnt_notebook.errors import ClusterError


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(folder))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "none"))
    return folder


@pytest.fixture
def own(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's folder, which goes before that of the site."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", f"{folder}:{site}")
    return folder


def test_without_a_file(site):
    assert defaults.load() == {}
    found = asked(2, {})
    assert (found.launcher, found.modules, found.keep, found.silence) == ("local", (), 0.25, 2.5)


def test_the_last_word_is_what_is_typed_then_the_persons_then_the_sites(site, own):
    (site / "tnt_config.py").write_text(
        "c.ClusterDefaults.launcher = 'slurm'\nc.ClusterDefaults.partition = 'cpu'\n"
        "c.ClusterDefaults.modules = ['cuda']\nc.ClusterDefaults.env = {'A': '1', 'B': '1'}\n"
        "c.ClusterDefaults.time = '1h'\nc.ClusterDefaults.extra = ['--qos=low']\n"
    )
    chosen = {"partition": "gpu", "env": {"B": "2", "C": "2"}, "keep": 0.0}
    (own / "tnt_config.json").write_text(json.dumps({"ClusterDefaults": chosen}))
    (own / "tnt_config.py").write_text("c.ClusterDefaults.modules.append('hdf5')\n")
    assert asked(4, {"time": "2h", "env": {"C": "3"}}) == Request(
        4, "slurm", partition="gpu", modules=("cuda", "hdf5"), time="2h",
        env={"B": "2", "C": "3"}, extra=("--qos=low",), keep=0.0,
    )  # fmt: skip
    shown = Cluster.planned(4, time="2h")
    for line in ("#SBATCH --partition=gpu", "#SBATCH --time=02:00:00", "#SBATCH --qos=low",
                 "module load hdf5 || exit"):  # fmt: skip
        assert line in shown.splitlines()


def test_in_a_persons_own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    (tmp_path / "tnt_config.py").write_text("c.ClusterDefaults.account = 'me'\n")
    assert defaults.load()["account"] == "me"


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        (".py", "c.ClusterDefaults.launcher = 'torque'", "The 'launcher' trait of a Cluster"),
        (".py", "c.ClusterDefaults.nodes = 'two'", "The 'nodes' trait of a ClusterDefaults"),
        (".py", "c.ClusterDefaults.modules = 5", "The 'modules' trait of a ClusterDefaults"),
        (".py", "c.ClusterDefaults.keep = -1", "keep = -1: it must be a number of hours"),
        (".py", "c.ClusterDefaults.time = 'soon'", "time = soon: write minutes (90), hours"),
        (".py", "c.ClusterDefaults.partitoin = 'x'", "ClusterDefaults has no 'partitoin'; it has"),
        (".py", "c.ClusterDefault.nodes = 1", "there is no 'ClusterDefault', only ClusterDefaults"),
        (".py", "this is no Python", "SyntaxError: invalid syntax"),
        (".py", "1 / 0", "ZeroDivisionError: division by zero"),
        (".py", "import sys; sys.exit(3)", "SystemExit: 3"),
        (".json", "{", "JSONDecodeError: Expecting property name"),
        (".json", "[1]", "TypeError: "),
        (".json", '{"ClusterDefaults": 5}', "ClusterDefaults must have names and values."),
        (".json", '{"ClusterDefaults": {"nodes": 1.5}}', "The 'nodes' trait of a ClusterDefaults"),
    ],
)
def test_a_broken_file_is_named(site, suffix, text, message):
    file = site / f"tnt_config{suffix}"
    file.write_text(text)
    with pytest.raises(ClusterError) as raised:
        Cluster.planned(2)
    assert str(raised.value).startswith(f"{file}: {message}"), raised.value


def test_inside_of_a_job_its_nodes_are_used(site, tmp_path, monkeypatch):
    (site / "tnt_config.py").write_text(
        "c.ClusterDefaults.launcher = 'slurm'\nc.ClusterDefaults.partition = 'gpu'\n"
        "c.ClusterDefaults.time = '1h'\n"
    )
    nodes = tmp_path / "nodes"
    nodes.write_text("node1\nnode1\nnode2\n")
    monkeypatch.setenv("PBS_JOBID", "12.server")
    monkeypatch.setenv("PBS_NODEFILE", str(nodes))
    shown = Cluster.planned()
    assert '--hostfile "$TNT_FOLDER/hosts"' in shown and " -n 3 " in shown
    assert "#SBATCH" not in shown and "#PBS" not in shown
    assert "#SBATCH --partition=gpu" in Cluster.planned(2, launcher="slurm")
    assert "PBS_NODEFILE" not in Cluster.planned(2, launcher="local").replace("-u PBS_NODEFILE", "")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
NAMES = st.sampled_from(["launcher", "nodes", "time", "modules", "env", "keep", "version", "x"])


@pytest.fixture(scope="module")
def anywhere(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("configuration")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_CONFIG_PATH", str(folder))
        yield folder


@settings(max_examples=100)
@given(VALUES | st.fixed_dictionaries({"ClusterDefaults": st.dictionaries(NAMES, VALUES)}))
def test_whatever_a_file_holds_it_is_read_or_named(anywhere, said):
    (anywhere / "tnt_config.json").write_text(json.dumps(said))
    try:
        Cluster.planned(2)
    except ClusterError:
        pass
