"""How far a call of the notebook is, told while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

from ipyparallel.engine.datapub import publish_data

from tnt_notebook.protocol import Published
from tnt_notebook.telemetry.pace import TOLD_S


def teller(key: Published) -> Callable[..., None]:
    """Publishes what it is given, as plain data: a few times a second, or always where it must."""
    last = 0.0

    def tell(said: object, always: bool = False) -> None:
        nonlocal last
        now = time.monotonic()
        if always or now - last > TOLD_S:
            last = now
            publish_data({key: said})

    return tell
