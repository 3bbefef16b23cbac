"""What axe-core finds on the card, and elsewhere."""

import json

from axe_playwright_python.sync_playwright import Axe

from tests.browser.lab import Notebook


def expect_accessible(notebook: Notebook, where: str = ".tnt-card") -> None:
    """Nothing serious."""
    found = Axe().run(notebook.page, where).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert not serious, json.dumps(serious, indent=1)
