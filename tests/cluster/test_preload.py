"""What ranks load in the background: what a fit, a fork and an interrupt meet meanwhile.

Of modules that a test makes: Keras itself is loaded so in ``test_life.py``.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from tnt_notebook.cluster import Cluster
from tnt_notebook.errors import ClusterError, RankError


@pytest.fixture
def loading(pair: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Ranks that load a module which ends, well or not, when the file ``go`` is there."""
    (tmp_path / "slow_to_load").mkdir()
    (tmp_path / "slow_to_load" / "part.py").write_text("from slow_to_load import answer")
    (tmp_path / "slow_to_load" / "__init__.py").write_text(f"""
import pathlib, time
while not pathlib.Path({str(tmp_path / "go")!r}).exists():
    time.sleep(0.01)
answer = 42
raise_ = pathlib.Path({str(tmp_path / "go")!r}).read_text()
exec(raise_)
""")
    pair.run(f"""
import os, sys
from tnt_notebook.engine import preload
sys.path.insert(0, {str(tmp_path)!r})
for name in ("slow_to_load", "slow_to_load.part"): sys.modules.pop(name, None)
os.environ.pop("TF_OF_A_TEST", None)
assert preload.begin("slow_to_load") and not preload.begin("slow_to_load")
""")
    yield pair
    pair.run("""
sys.path.pop(0)
get_ipython().events.unregister("post_run_cell", preload._tell_late_variables)
""")


def test_cells_run_meanwhile_and_late_variables_are_told(loading, tmp_path, capsys):
    loading.run("print('at once', preload._ended.is_set())")
    loading.run("os.environ['TF_OF_A_TEST'] = '1'")
    loading.run("import subprocess\nfrom tnt_notebook import comm\n!echo once")
    out, err = capsys.readouterr()
    assert out == "ranks 0-1: at once False\nranks 0-1: once\n"
    assert err.startswith("ranks 0-1: TF_OF_A_TEST is set, but ranks began to load Keras when ")
    assert err.count("TF_OF_A_TEST is set") == 1 and "--env TF_OF_A_TEST=..." in err
    (tmp_path / "go").touch()


FORK = """
import multiprocessing
def child(answers):
    import slow_to_load
    answers.put(slow_to_load.answer)
answers = multiprocessing.get_context("fork").SimpleQueue()
process = multiprocessing.get_context("fork").Process(target=child, args=(answers,))
print("begins", flush=True)
process.start()
print(answers.get())
process.join()
"""


@pytest.mark.parametrize(
    "waits", ["print('begins')\nfrom slow_to_load.part import answer; print(answer)", FORK]
)
def test_imports_and_forks_wait_for_the_end(loading, tmp_path, capsys, waits):
    with ThreadPoolExecutor() as threads:
        running = threads.submit(loading.run, waits)
        eventually(lambda: all("begins" in loading.logs(rank) for rank in (0, 1)))
        (tmp_path / "go").touch()
        running.result(20)
    assert capsys.readouterr().out == "ranks 0-1: begins\nranks 0-1: 42\n"


def test_where_memory_is_short_it_is_left_to_the_fit(pair):
    pair.run("""
from tnt_notebook import control_group
from tnt_notebook.engine import preload
usual, control_group.memory_left = control_group.memory_left, lambda: 3 << 28
assert not preload.begin("never_loaded")
control_group.memory_left = usual
assert 1 << 20 < usual() < 1 << 50
""")
    assert "not loaded in advance: 768 MB of memory are left for 2 ranks." in pair.logs(1)


def test_a_fit_waits_can_be_ended_meanwhile_and_raises_what_loading_raised(loading, tmp_path):
    fit = loading.fit("1", {})
    eventually(lambda: fit.state == "running")
    fit.abort()
    with pytest.raises((RankError, ClusterError), match="KeyboardInterrupt"):
        fit.wait(300)
    (tmp_path / "go").write_text("raise ImportError('libcuda of a test is missing')")
    with pytest.raises(RankError, match="ImportError: libcuda of a test is missing"):
        loading.fit("1", {}).wait(300)
    assert "could not be loaded in advance: ImportError: libcuda" in loading.logs(1)
    with pytest.raises(RankError, match="calls neither fit"):  # it was told; this one loads itself
        loading.fit("1", {}).wait(300)
