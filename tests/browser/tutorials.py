"""Runs the tutorials, and keeps in them what their cells show: for the pages of the documentation.

    python -m tests.browser.tutorials [NAME ...]        make tutorials

This machine and its folders have other names there. Figures are kept as images, since those pages
load no plotly.
"""

import base64
import io
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
from jupyter_client.kernelspec import KernelSpecManager
from PIL import Image
from playwright.sync_api import Page
from plotly.offline import get_plotlyjs

from tests.demo import CHECKOUT, TUTORIALS, execute
from tests.support.chromium import chromium
from tests.support.slurm import slurm_here
from tnt_notebook.dashboard.card.saved import PLOTLY

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
        for path in sorted(TUTORIALS.glob("*.ipynb")):
            if names and not path.name.startswith(tuple(names)):
                continue
            print(path.name, flush=True)
            with ExitStack() as machine:
                if path.name.startswith(ON_SLURM):
                    os.environ.update(machine.enter_context(slurm_here()).environment)
                notebook = execute(path, Path(folder) / path.name)
            nbformat.write(kept(notebook, page, here(folder)), path)


def here(folder: str) -> dict[str, str]:
    """What this machine and its folders are called, and what they are called on pages.

    Args:
        folder: in which runs are kept.
    """
    return {
        folder: "/home/you/.local/share/tnt_notebook/runs",
        str(CHECKOUT): "/home/you/tnt_notebook",
        str(Path.home()): "/home/you",
        platform.node(): "lab1",
    }


def kept(
    notebook: nbformat.NotebookNode, page: Page, names: dict[str, str]
) -> nbformat.NotebookNode:
    """The notebook, with that of its outputs which stays."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata.kernelspec = kernelspec(notebook.metadata.kernelspec.name)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            shown_here = (one for output in cell.outputs for one in shown(output, page))
            cell.outputs = [nbformat.from_dict(renamed(one, names)) for one in shown_here]
    return notebook


def kernelspec(name: str) -> dict[str, str]:
    """As JupyterLab writes it where a notebook is opened: otherwise that would change the file."""
    spec = KernelSpecManager().get_kernel_spec(name)
    return {"display_name": spec.display_name, "language": spec.language, "name": name}


def shown(output: nbformat.NotebookNode, page: Page) -> Iterator[nbformat.NotebookNode]:
    """An output, where there is something to see."""
    data: dict[str, Any] = output.get("data", {})
    if PLOTLY in data:
        data["image/png"] = image(data.pop(PLOTLY), page)
        data.pop("text/html", None)
    if "image/png" in data:
        data.pop("image/jpeg", None)
    is_empty = "data" in output and not any(data.values())
    if not (is_empty or WIDGET in data or output.get("name") == "stderr"):
        yield output


def renamed(value: Any, names: dict[str, str]) -> Any:
    """An output, or a part of it, with other names in its text."""
    if isinstance(value, dict):
        return {
            key: one if key == "image/png" else renamed(one, names) for key, one in value.items()
        }
    if isinstance(value, str):
        for own, other in names.items():
            value = _instead(value, own, other)
    return value


def _instead(text: str, own: str, other: str) -> str:
    """One name for another; columns of tables stay where they are, if there is room."""
    name, room = rf"(?<!\w){re.escape(own)}(?!\w)", len(other) + 2
    text = re.sub(rf"{name} {{2,}}", lambda found: other.ljust(max(len(found[0]), room)), text)
    return re.sub(name, other, text)


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
