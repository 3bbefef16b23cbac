"""What the panel of JupyterLab asks its server: which clusters and runs of this user there are.

The Jupyter server answers from what clusters and runs have on disk, so that nobody's ranks are
asked, no port is opened, and no kernel is needed. It only reads: whatever is to be done, the panel
types into a notebook. The browser's side is in ``labextension/``.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "tnt_notebook.panel"}]


def _load_jupyter_server_extension(server: Any) -> None:
    from tnt_notebook.panel.handlers import handlers

    server.web_app.add_handlers(".*$", handlers(server.web_app.settings["base_url"]))
