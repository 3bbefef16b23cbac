"""Shells and kernels with the extension, as behind a notebook but without the browser."""

import atexit
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from tests.magics.notebook import Notebook, kernel

#: In a kernel that other tests have had: the environment is that of this test, and its folder.
BEGIN = """
import os
os.chdir({folder!r})
os.environ.pop("TNT_NONINTERACTIVE", None)
os.environ["TNT_RUNS_DIR"] = {runs!r}
%load_ext tnt_notebook
%tnt_cluster attach {ranks}
"""
END = "%tnt_cluster detach\n%unload_ext tnt_notebook\n%reset -f"


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """A fresh shell with the magics; what it started is stopped afterwards."""
    InteractiveShell.clear_instance()
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "tnt_notebook")
    yield shell
    shell.run_line_magic("unload_ext", "tnt_notebook")
    InteractiveShell.clear_instance()
    atexit.unregister(shell.atexit_operations)  # each would collect all garbage of all tests


@pytest.fixture
def shell_with_ranks(shell: InteractiveShell, two_ranks: str) -> Iterator[InteractiveShell]:
    """A fresh shell, attached to two ranks that other tests have had."""
    shell.run_line_magic("tnt_cluster", f"attach {two_ranks}")
    yield shell
    shell.run_line_magic("tnt_cluster", "detach")


@pytest.fixture(scope="package")
def shared_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """A kernel that tests have one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        with kernel(tmp_path_factory.mktemp("notebook")) as notebook:
            yield notebook


@pytest.fixture
def notebook(shared_kernel: Notebook, two_ranks: str, tmp_path: Path) -> Iterator[Notebook]:
    """Attached to two ranks; kernel and ranks other tests have had."""
    runs = os.environ["TNT_RUNS_DIR"]
    begun = shared_kernel.run(BEGIN.format(folder=str(tmp_path), runs=runs, ranks=two_ranks))
    assert begun == f"2 ranks of cluster {two_ranks} are here again\n"
    yield shared_kernel
    try:
        shared_kernel.run(END)
    except BaseException:
        shared_kernel.manager.restart_kernel(now=True)
        shared_kernel.client.wait_for_ready(120)
        raise


@pytest.fixture
def own_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A kernel of this test's own, which has started two ranks."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("TNT_NONINTERACTIVE", raising=False)
    with kernel(tmp_path) as notebook:
        notebook.run("%load_ext tnt_notebook")
        started = notebook.run("%tnt_cluster start -n 2")
        assert "starting: 0 of 2 ranks have answered" in started and "2 ranks are ready" in started
        yield notebook
