"""Makes the pictures of README and documentation: of real trainings, in a real JupyterLab.

    python -m tests.browser.pictures FOLDER        make pictures

Each is there in a light and in a dark theme::

    ribbon-*.webp     the card while a pipeline trains, from the first second on; moving, below 2 MB
    saved-*.png       what stays in the notebook
    plan-*.png        what %tnt_plan says of a model
    panel-*.png       the panel of JupyterLab beside a training
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Locator, expect

from tests.browser.lab import THEMES, Lab, Notebook
from tests.support.chromium import chromium

RANKS = 2  # as many as any machine has cores for
START = f"%load_ext tnt_notebook\n%tnt_cluster start -n {RANKS}"
MODEL = """import keras
from keras import layers

x = keras.random.normal((1536, 24, 24, 3), seed=1)
y = keras.ops.mean(x, axis=(1, 2))
body = [layers.Conv2D(24, 3, padding="same", activation="relu") for _ in range(8)]
model = keras.Sequential([keras.Input((24, 24, 3)), *body, layers.GlobalAveragePooling2D(),
                          layers.Dense(3)])
model.compile("adam", "mse", metrics=["mae"])
"""
FIT = f"""%%tnt_fit --pipeline {RANKS} --micro-batches 8 --name ConvNet
{MODEL}model.fit(x, y, batch_size=64, epochs=6, validation_split=0.25)
"""
PLAN = "%tnt_plan --batch-size 64 --micro-batches 8 --schedule all"

WIDTH = 840  # pixels, of the page's for the moving picture
EVERY_S = 0.5
MOST_BYTES = 2_000_000


def main(folder: Path) -> None:
    """Writes them all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tnt-pictures-") as runs, chromium() as browser:
        os.environ["TNT_RUNS_DIR"] = runs
        for theme in THEMES:
            with tempfile.TemporaryDirectory(prefix="tnt-pictures-") as root:
                lab = Lab(Path(root) / "lab")
                try:
                    _pictures(lab, browser, theme, folder)
                finally:
                    lab.close()


def _pictures(lab: Lab, browser: Browser, theme: str, folder: Path) -> None:
    cells = [START, FIT, "ConvNet.wait()", f"%%tnt\n{MODEL}", PLAN, "%tnt_cluster stop"]
    lab.write("pictures.ipynb", cells)
    notebook = lab.open(browser, "pictures.ipynb", theme=theme)
    notebook.page.set_viewport_size({"width": 1280, "height": 1400})
    notebook.run_and_wait(0, 120)
    notebook.run_and_wait(1)
    card = notebook.page.locator(".tnt-card").first
    expect(card).to_be_visible()
    film = _filmed(notebook, card)
    notebook.run_and_wait(2, 300)
    expect(notebook.outputs(1).locator(".tnt-pill")).to_have_text("finished")
    film.append(_shot(notebook.outputs(1).locator(".tnt-card")))
    _write_film(film, folder / f"ribbon-{theme}.webp")
    _write(_shot(notebook.outputs(1)), folder / f"saved-{theme}.png")
    notebook.run_and_wait(3, 120)
    notebook.run_and_wait(4, 300)
    _write(_shot(notebook.outputs(4)), folder / f"plan-{theme}.png")
    notebook.run_and_wait(1)
    _panel_picture(notebook, folder / f"panel-{theme}.png")
    notebook.run_and_wait(2, 300)
    notebook.run_and_wait(5, 60)
    notebook.page.close()


def _panel_picture(notebook: Notebook, path: Path) -> None:
    """The panel while a run goes on, in a window that is no larger than it needs."""
    page = notebook.page
    page.set_viewport_size({"width": 1100, "height": 640})
    page.get_by_role("tab", name="Clusters and runs of tnt_notebook").click()
    panel = page.locator(".tnt-lab-panel")
    panel.get_by_role("button", name="Start ranks").click()
    expect(panel.locator(".tnt-lab-state")).to_have_text("training")
    expect(panel.locator(".tnt-lab-cpu").first).to_have_text(re.compile(r"[1-9]\d+ %"))
    expect(notebook.outputs(1).locator(".tnt-where")).to_contain_text(re.compile("epoch [2-9]"))
    _write(_shot(page.locator("#main")), path)


def _filmed(notebook: Notebook, card: Locator) -> list[Image.Image]:
    """The card while the training goes on; from the begin until it is over."""
    film, pill = [], card.locator(".tnt-pill")
    notebook.page.locator(".jp-Notebook").hover(position={"x": 5, "y": 5})
    while pill.inner_text() in ("starting", "running"):
        begin = time.monotonic()
        film.append(_shot(card))
        time.sleep(max(0.0, EVERY_S - (time.monotonic() - begin)))
    return film[:-1]


def _shot(what: Locator) -> Image.Image:
    return Image.open(io.BytesIO(what.screenshot())).convert("RGB")


def _write_film(film: list[Image.Image], path: Path) -> None:
    """All of it on the last picture's size, smaller until it is small enough."""
    width = WIDTH
    height = max(round(picture.height * width / picture.width) for picture in film)
    page = film[-1].getpixel((0, 0))
    frames = []
    for picture in film:
        small = picture.resize(
            (width, round(picture.height * width / picture.width)), Image.LANCZOS
        )
        frame = Image.new("RGB", (width, height), page)
        frame.paste(small)
        frames.append(frame)
    for quality in (80, 60, 40, 25):
        lengths = [*[200] * (len(frames) - 1), 3000]  # in ms: faster than it was, and then a rest
        frames[0].save(
            path, save_all=True, append_images=frames[1:], duration=lengths, loop=0,
            quality=quality, method=4, minimize_size=True,
        )  # fmt: skip
        if path.stat().st_size < MOST_BYTES:
            break
    else:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes, {MOST_BYTES:,} are allowed")
    print(f"{path}: {len(frames)} pictures, {path.stat().st_size:,} bytes")


def _write(picture: Image.Image, path: Path) -> None:
    # Not by what there is most of: colours of a legend are few pixels.
    picture.quantize(256, Image.Quantize.FASTOCTREE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
