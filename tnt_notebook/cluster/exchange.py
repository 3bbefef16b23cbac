"""How ranks are asked to reach each other: checked here, told to them by their environment."""

from __future__ import annotations

import os

from tnt_notebook.choices import MAX_LANES, TRANSPORTS
from tnt_notebook.errors import ClusterError

TRANSPORT_VARIABLE, LANES_VARIABLE = "TNT_TRANSPORT", "TNT_LANES"


def exchange_settings(transport: str | None, lanes: int | None) -> dict[str, str]:
    """The environment by which ranks learn how to reach each other.

    Args:
        transport: one of ``choices.TRANSPORTS``; what the environment says when None.
        lanes: 1 to ``choices.MAX_LANES``; what the environment says when None.

    Raises:
        ClusterError: a value that cannot be, given or in the environment; it names its origin.
    """
    settings = {}
    inherited = os.environ.get(TRANSPORT_VARIABLE)
    asked = inherited if transport is None else transport
    if asked is not None:
        origin = "--transport " if transport is not None else f"{TRANSPORT_VARIABLE}="
        if asked not in TRANSPORTS:
            raise ClusterError(f"{origin}{asked}: it must be one of {', '.join(TRANSPORTS)}.")
        settings[TRANSPORT_VARIABLE] = asked
    threads = os.environ.get(LANES_VARIABLE) if lanes is None else str(lanes)
    if threads is not None:
        origin = "--lanes " if lanes is not None else f"{LANES_VARIABLE}="
        if not threads.isdecimal() or not 1 <= int(threads) <= MAX_LANES:
            raise ClusterError(f"{origin}{threads}: a rank has 1 to {MAX_LANES} progress threads.")
        settings[LANES_VARIABLE] = threads
    return settings
