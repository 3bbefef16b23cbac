"""Cards of the notebooks, each with the picture among its outputs that shows most.

In a page, a line for each: its file, and what it is about::

    ```{gallery}
    07-jets-in-a-detector: decays of heavy particles
    ```
"""

import base64
import json
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

_CARD = (
    '<a class="gallery-card" href="{page}"><img src="{picture}" alt="" loading="lazy">'
    "<b>{title}</b><span>{about}</span></a>"
)


def pictures(notebook: dict[str, Any]) -> list[bytes]:
    """The PNGs among the outputs of its cells."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    found = [output.get("data", {}).get("image/png") for output in outputs]
    return [base64.b64decode(png) for png in found if png]


def title(notebook: dict[str, Any]) -> str:
    """Its first heading."""
    first = "".join(notebook["cells"][0]["source"])
    return first.splitlines()[0].lstrip("# ")


class Gallery(SphinxDirective):
    """The cards, as HTML: their pictures are written beside those of the site."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        folder = Path(self.env.app.outdir, "_images")
        folder.mkdir(parents=True, exist_ok=True)
        cards = []
        for line in self.content:
            name, _, about = line.partition(": ")
            path = Path(self.env.srcdir, "notebooks", f"{name}.ipynb")
            self.env.note_dependency(str(path))
            notebook = json.loads(path.read_text(encoding="utf-8"))
            if not (found := pictures(notebook)):
                raise self.error(f"{name} shows no picture: make tutorials")
            picture = folder / f"gallery-{name}.png"
            picture.write_bytes(max(found, key=len))
            cards.append(
                _CARD.format(
                    page=f"notebooks/{name}.html", picture=f"_images/{picture.name}",
                    title=escape(title(notebook)), about=escape(about),
                )
            )  # fmt: skip
        return [nodes.raw("", f'<div class="gallery">{"".join(cards)}</div>', format="html")]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True}
