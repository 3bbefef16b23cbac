"""A Jupyter server in another environment than the kernel, without what draws widgets."""

import json
import os
import site
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import environment_of_kernels
from tests.browser.lab import Lab

START = "%load_ext tnt_notebook\n%tnt_cluster start -n 2"
FIT = """%%tnt_fit
import keras
import numpy as np
x, y = np.ones((64, 4)), np.ones(64)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, epochs=100_000, verbose=0)"""
STOP = "fit.stop(); fit.wait()\n%tnt_cluster stop"


def environment_without_widgets(folder: Path) -> str:
    """A Python of its own with JupyterLab, and without extensions of it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text("\n".join(site.getsitepackages()))
    share = folder / "share/jupyter"
    (share / "kernels/python3").mkdir(parents=True)
    (share / "lab").symlink_to(Path(sys.prefix, "share/jupyter/lab"))
    kernel = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]}
    described = kernel | {"display_name": "Python 3", "language": "python"}
    (share / "kernels/python3/kernel.json").write_text(json.dumps(described))
    return str(folder / "bin/python")


def test_says_what_to_install_and_tells_progress_as_text(browser, tmp_path):
    python = environment_without_widgets(tmp_path / "server")
    path = {"PATH": os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])}
    lab = Lab(tmp_path / "lab", environment_of_kernels() | path, python=python)
    try:
        lab.write("plain.ipynb", [START, FIT, STOP])
        notebook = lab.open(browser, "plain.ipynb")
        notebook.run_and_wait(0)
        said = notebook.outputs(0)
        expect(said).to_contain_text("2 ranks are ready")
        expect(said).to_contain_text(f"{python} -m pip install anywidget ipywidgets")
        notebook.run_and_wait(1)
        expect(notebook.outputs(1)).to_contain_text("fit: epoch ", timeout=60_000)
        expect(notebook.outputs(1)).to_contain_text(", loss ")
        notebook.run_and_wait(2)
        expect(notebook.outputs(1)).to_contain_text("stopped after")
        expect(notebook.outputs(1)).not_to_contain_text("fit: epoch ")
        notebook.page.close()
    finally:
        lab.close()
