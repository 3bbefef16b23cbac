"""``make demo``: runs the first tutorial without a browser, and prints what the live view left."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import nbclient
import nbformat

CHECKOUT = Path(__file__).parents[1]
TUTORIALS = CHECKOUT / "notebooks"
OUTPUT = CHECKOUT / "build" / "demo"
CELL_S = 600


def execute(path: Path, output: Path) -> nbformat.NotebookNode:
    """Runs all cells of a notebook in a fresh kernel; each waits until its training has ended.

    Args:
        path: the notebook.
        output: where the executed notebook goes, also when a cell fails.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_S,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    os.environ["TNT_NONINTERACTIVE"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        return client.execute()
    finally:
        output.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, output)


def summaries(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """The summaries of all trainings: final loss and metrics, samples/s of each rank."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            text = output.get("data", {}).get("text/plain", "")
            if "samples/s" in text:
                yield text


def main() -> None:
    """Runs the first tutorial; the exit code is 1 if nothing was trained."""
    tutorial = min(TUTORIALS.glob("01-*.ipynb"), default=None)
    if tutorial is None:
        sys.exit(f"There is no first tutorial (01-*.ipynb) in {TUTORIALS}.")
    output = OUTPUT / tutorial.name
    print(f"running {tutorial.relative_to(CHECKOUT)} on real ranks ...", flush=True)
    try:
        found = list(summaries(execute(tutorial, output)))
    except nbclient.exceptions.CellExecutionError as error:
        sys.exit(f"{error}\nA cell of the tutorial failed; the notebook so far: {output}")
    if not found:
        sys.exit(f"The tutorial trained nothing; the executed notebook: {output}")
    print("\n".join(["", *found, "", f"executed notebook: {output}"]))


if __name__ == "__main__":
    main()
