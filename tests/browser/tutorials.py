"""Runs the tutorials, and keeps in them what their cells show: for the pages of the documentation.

    python -m tests.browser.tutorials [NAME ...]        make tutorials

What names this machine or a folder of it is not kept. Figures are kept as images, since those
pages load no plotly.
"""

import base64
import io
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image
from playwright.sync_api import Page
from plotly.offline import get_plotlyjs

from notebooks.demo import HERE, execute
from tests.support.chromium import chromium
from tests.support.slurm import slurm_here
from tnt_notebook.dashboard.saved import PLOTLY

WIDGET = "application/vnd.jupyter.widget-view+json"
ON_SLURM = "04-"
WIDTH, HEIGHT = 800, 360  # pixels, of figures that do not say
COLOURS = 64
TO_IMAGE = """async ([figure, width, height]) => {
  const { layout } = figure;
  const size = { width: layout.width ?? width, height: layout.height ?? height };
  return Plotly.toImage(figure, { format: "png", scale: 2, ...size });
}"""


def main(names: list[str]) -> None:
    """Of all tutorials, or of those whose names begin so."""
    with chromium() as browser, tempfile.TemporaryDirectory(prefix="tnt-tutorials-") as folder:
        page = browser.new_page()
        page.add_script_tag(content=get_plotlyjs())
        os.environ["TNT_RUNS_DIR"] = folder
        for path in sorted(HERE.glob("*.ipynb")):
            if names and not path.name.startswith(tuple(names)):
                continue
            print(path.name, flush=True)
            with ExitStack() as machine:
                if path.name.startswith(ON_SLURM):
                    os.environ.update(machine.enter_context(slurm_here()).environment)
                notebook = execute(path, Path(folder) / path.name)
            nbformat.write(kept(notebook, page), path)


def kept(notebook: nbformat.NotebookNode, page: Page) -> nbformat.NotebookNode:
    """The notebook, with that of its outputs which stays."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [one for output in cell.outputs for one in shown(output, page)]
    return notebook


def shown(output: nbformat.NotebookNode, page: Page) -> Iterator[nbformat.NotebookNode]:
    """An output, where there is something to see that is not of this machine alone."""
    data: dict[str, Any] = output.get("data", {})
    if PLOTLY in data:
        data["image/png"] = image(data.pop(PLOTLY), page)
        data.pop("text/html", None)
    if "image/png" in data:
        data.pop("image/jpeg", None)
    is_empty = "data" in output and not any(data.values())
    text = json.dumps({**output, "data": {**data, "image/png": ""}})
    here = (platform.node(), str(HERE.parent), tempfile.gettempdir())
    is_of_here = any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in here)
    if not (is_empty or is_of_here or WIDGET in data or output.get("name") == "stderr"):
        yield output


def image(figure: dict[str, Any], page: Page) -> str:
    """A figure as PNG of few colours, in base64."""
    said = str(page.evaluate(TO_IMAGE, [figure, WIDTH, HEIGHT]))
    drawn = Image.open(io.BytesIO(base64.b64decode(said.partition(",")[2], validate=True)))
    small = io.BytesIO()
    few = drawn.convert("RGBA").quantize(COLOURS, Image.Quantize.FASTOCTREE)
    few.save(small, "png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


if __name__ == "__main__":
    main(sys.argv[1:])
