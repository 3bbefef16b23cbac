"""Runs the tutorials, and keeps in them what their cells show: for the pages of the documentation.

    python -m tests.browser.tutorials [NAME ...]        make tutorials

What names this machine or a folder of it is not kept. Figures are kept as images, since those
pages load no plotly.
"""

import base64
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Page
from plotly.offline import get_plotlyjs

from notebooks.demo import HERE, execute
from tests.support.chromium import chromium
from tests.support.slurm import slurm_here

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
ON_SLURM = "04-"
WIDTH, HEIGHT = 800, 360  # pixels, of figures that do not say
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
            cell.execution_count = None
            cell.outputs = [one for output in cell.outputs for one in shown(output, page)]
    return notebook


def shown(output: nbformat.NotebookNode, page: Page) -> Iterator[nbformat.NotebookNode]:
    """An output, where there is something to see that is not of this machine alone."""
    data: dict[str, Any] = output.get("data", {})
    if PLOTLY in data:
        data["image/png"] = image(data.pop(PLOTLY), page)
        data.pop("text/html", None)
    is_empty = "data" in output and not any(data.values())
    text = json.dumps(output)
    is_of_here = any(name in text for name in (platform.node(), str(HERE), tempfile.gettempdir()))
    if not (is_empty or is_of_here or WIDGET in data or output.get("name") == "stderr"):
        if "execution_count" in output:
            output.execution_count = None
        yield output


def image(figure: dict[str, Any], page: Page) -> str:
    """A figure as PNG, in base64."""
    said = str(page.evaluate(TO_IMAGE, [figure, WIDTH, HEIGHT]))
    png = said.removeprefix("data:image/png;base64,")
    base64.b64decode(png, validate=True)
    return png


if __name__ == "__main__":
    main(sys.argv[1:])
