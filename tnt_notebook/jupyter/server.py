"""The Jupyter server that has started this kernel: whether its browsers can draw our views.

It is often in an environment of its own, as behind a JupyterHub, and what draws widgets in a
browser comes from there.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil
from jupyter_core.paths import jupyter_runtime_dir

#: Extensions of JupyterLab and Notebook 7, and the packages that bring them.
_NEEDED = {"anywidget": "anywidget", "@jupyter-widgets/jupyterlab-manager": "ipywidgets"}
_FOLDERS = """
import json, jupyter_core.paths
print(json.dumps(jupyter_core.paths.jupyter_path("labextensions")))
"""
_ANSWER_S = 10.0


def what_it_lacks() -> str:
    """A sentence that says what to install, and where; empty where nothing is lacking, or where no
    server of this host has started this process."""
    try:
        server = psutil.Process(os.getppid())
        # Every server of Jupyter writes such a file, under its own number.
        if not Path(jupyter_runtime_dir(), f"jpserver-{server.pid}.json").exists():
            return ""
        python, environment = server.cmdline()[0], server.environ()
        asked = [python, "-c", _FOLDERS]
        told = subprocess.run(
            asked, env=environment, capture_output=True, timeout=_ANSWER_S, check=True
        )
    except (OSError, psutil.Error, subprocess.SubprocessError):
        return ""  # what it may do is not ours to know
    packages = lacking(json.loads(told.stdout))
    if not packages:
        return ""
    return (
        f"The Jupyter server of this notebook lacks {' and '.join(packages)}, so that its browsers "
        f"show no live view. Install there: {python} -m pip install {' '.join(packages)}; then "
        "restart the server, and reload the page. Until then, progress is told as text."
    )


def lacking(folders: Sequence[str]) -> list[str]:
    """The packages whose extensions are in none of the folders in which a server looks for them."""
    return [
        package
        for extension, package in _NEEDED.items()
        if not any(Path(folder, extension, "package.json").exists() for folder in folders)
    ]
