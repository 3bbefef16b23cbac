"""``%tnt_bench``: what it shows, what it leaves, and what the ranks do afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.magics.notebook import PLOTLY, ended, shown
from tests.magics.test_commands import typed

SMALL = "--max-mb 0.02 --rounds 3"


@pytest.fixture
def rules_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where rules are saved, for this test alone."""
    monkeypatch.delenv("TNT_RULES", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "tnt_notebook" / "rules.json"


def test_measured_saved_loaded_and_broken(shell, rules_file):
    typed(shell, "%tnt_cluster start -n 3")
    refused = typed(shell, "%tnt_bench allreduce --algorithms rign")
    assert refused.startswith("UsageError: Algorithm 'rign' is not one of ring, ")
    assert len(refused.splitlines()) == 1
    text = typed(shell, f"%tnt_bench allreduce {SMALL} --algorithms ring,double_tree")
    lines = text.splitlines()
    assert lines[0].startswith("3 sizes measured in ")
    assert lines[1] == (
        "allreduce of float32 on 3 ranks by shared memory: median of 3 rounds, in µs "
        "(* the fastest, both by medians and by the ratios within rounds)"
    )
    assert lines[3].split()[:4] == ["size", "ring", "double_tree", "limit"]
    assert [line.split()[:2] for line in lines[4:7]] == [["1", "KB"], ["4", "KB"], ["16", "KB"]]
    assert all(line.count("*") <= 1 for line in lines[4:7])
    assert lines[-1].startswith("Within 5% of the fastest: ") and not rules_file.exists()
    bench = shell.user_ns["bench"]
    assert {row["algorithm"] for row in bench.rows} == {"ring", "double_tree"}
    assert len(bench.rows) == 6 and bench.complete
    assert len(bench.figure.data) == 2 * (2 + 1 + 2)

    saving = f"%tnt_bench allreduce {SMALL} --algorithms double_tree --save --name tuned"
    saved = typed(shell, saving).splitlines()[-1]
    assert saved == f"1 rule for 3 ranks saved in {rules_file}, and in use from now on"
    again = typed(shell, f"%tnt_bench allreduce {SMALL} --algorithms ring")
    assert again.splitlines()[4].split()[-1] == "double_tree"  # what the rules take
    table = typed(shell, "%tnt_bench rules").splitlines()
    assert str(rules_file) in table[0]
    assert table[3].split()[:4] == ["allreduce", "double_tree", "32", "KB"]
    assert "default" in table[4]

    assert typed(shell, "%tnt_cluster restart") == "3 ranks are ready\n"
    cell = "from tnt_notebook import comm\n[rule.algorithm for rule in comm.world().rules]"
    assert typed(shell, f"%%tnt\n{cell}") == "ranks 0-2: ['double_tree']\n"

    rules_file.write_text(rules_file.read_text().replace("double_tree", "double_trees"))
    assert "RulesError" in typed(shell, saving).splitlines()[-1]
    refused = typed(shell, "%tnt_cluster restart")
    assert "ClusterError: Ranks ended while starting." in refused
    assert f"{rules_file}, rule 1: algorithm 'double_trees' of allreduce is not one of" in refused
    assert "Traceback" not in refused
    assert "NoClusterError" in typed(shell, "%tnt_cluster status")


def test_a_notebook_keeps_table_and_figure_also_when_interrupted(notebook):
    cell = notebook.begin(f"%tnt_bench allreduce {SMALL} --in-place")
    messages = notebook.messages_until(cell, ended)
    assert "measuring 1 KB: round 0 of 3" in shown(messages)
    rich = [m["content"] for m in messages if "transient" in m["content"]]
    (figure,) = [content for content in rich if PLOTLY in content["data"]]  # drawn once
    names = {trace.get("name") for trace in figure["data"][PLOTLY]["data"]}
    assert names >= {"ring", "direct", "limit: moving the bytes"}
    tables = [content for content in rich if "<table" in content["data"].get("text/html", "")]
    assert len({table["transient"]["display_id"] for table in tables}) == 1
    assert len(tables) == 3 + 1  # it grows size by size
    assert "<td>16 KB</td>" in tables[-1]["data"]["text/html"]
    assert "allreduce of float32, in place, on 2 ranks" in tables[-1]["data"]["text/plain"]

    # An interrupt leaves what was measured, and free ranks.
    cell = notebook.begin("%tnt_bench allreduce --max-mb 64 --rounds 1000")
    notebook.messages_until(cell, lambda messages: "measuring 4 KB: round 1" in shown(messages))
    notebook.manager.interrupt_kernel()
    rest = shown(notebook.messages_until(cell, ended, 15))
    assert "interrupting ranks 0-1" in rest and "measured before the interrupt" in rest
    assert "Traceback" not in rest
    assert notebook.run("bench.complete, len(bench.sizes) >= 1") == "(False, True)\n"
    total = "import numpy as np; from tnt_notebook import comm; comm.world().allreduce(np.ones(2))"
    assert notebook.run(f"%%tnt\n{total}") == "ranks 0-1: array([2., 2.])\n"
    assert "3 sizes measured" in notebook.run(f"%tnt_bench allreduce {SMALL}")
