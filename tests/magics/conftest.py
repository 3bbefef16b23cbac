"""An IPython shell with the extension, as in a notebook but without the browser."""

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


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
