"""What the panel is told of clusters is what a cluster's owner knows."""

import psutil
import pytest

from tnt_notebook.cluster.files import fit_note
from tnt_notebook.cluster.files import record as records
from tnt_notebook.errors import ClusterError
from tnt_notebook.panel.overview import LATEST_RUNS, log, options_of_start, overview
from tnt_notebook.telemetry import run_folder


def of_cluster(cluster):
    (found,) = [one for one in overview()["clusters"] if one["id"] == cluster.id]
    return found


def test_ranks_are_those_of_status(pair):
    pair.run("sum(range(10_000_000))")
    told = of_cluster(pair)
    assert (told["ranks"], told["owned"], told["here"], told["busy"]) == (2, True, True, False)
    assert [row["pid"] for row in told["rows"]] == [row.pid for row in pair.status()]
    for row in told["rows"]:
        assert row["state"] == "alive"
        assert row["memory"] > 20 << 20
        assert 0 < row["cpu_s"] <= sum(psutil.Process(row["pid"]).cpu_times()[:2])


def test_what_a_cluster_trains_is_among_the_runs_however_many_are_later(
    pair, tmp_path, monkeypatch
):
    monkeypatch.setenv("TNT_RUNS_DIR", str(tmp_path))
    names = [f"20260101-00000{n}-run" for n in range(LATEST_RUNS + 2)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / run_folder.ABOUT).write_text("{}")
    folder = records.find(pair.id).folder
    fit_note.write(folder, pair.ranks, fit_note.FitNote("run", str(tmp_path / names[0]), {}))
    told = overview()
    fit_note.remove(folder)
    assert of_cluster(pair)["run"] is None
    assert [run["id"] for run in told["runs"]] == [*names[:1:-1], names[0]]


def test_a_log_is_that_of_the_rank(pair):
    pair.run("print('from the panel')", ranks=[1])
    assert "from the panel" in log(pair.id, "1")["text"]
    assert "from the panel" not in log(pair.id, "0")["text"]
    assert isinstance(log(pair.id, "launcher")["text"], str)


def test_what_is_no_rank_and_no_cluster_is_refused(pair):
    with pytest.raises(ValueError, match="invalid literal"):
        log(pair.id, "../../cluster.json")
    with pytest.raises(ClusterError, match="no cluster 'zz'"):
        log("zz", "0")


def test_the_form_has_the_options_of_start():
    options = {one["flag"]: one for one in options_of_start()["options"]}
    assert options["-n"]["number"] and options["--env"]["repeated"]
    assert options["--hostfile"]["launchers"] == ("ssh",)
    assert "--queue-hours" not in options
