"""The options of ``%tnt_bench input`` as arguments of a magic, and what was typed of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument

from tnt_notebook.magics.lists import name_list, number_list
from tnt_notebook.plan.loading import FORMATS, STORAGES
from tnt_notebook.words import meant

Magic = Callable[..., Any]


_ARGUMENTS: dict[str, dict[str, Any]] = {
    "--formats": {
        "type": name_list, "metavar": "F", "help": f"formats: {','.join(FORMATS)} (default: all)",
    },
    "--storages": {
        "type": name_list, "metavar": "S", "help": "local,throttled (default: both)",
    },
    "--calls": {"type": number_list, "metavar": "N", "help": "parallel calls (default: 1,4,16)"},
    "--prefetch": {"type": number_list, "metavar": "N", "help": "batches ahead (default: 0,2)"},
    "--latency": {
        "type": float, "metavar": "MS",
        "help": "delay of each open or read in throttled storage (default: 1 ms)",
    },
    "--bandwidth": {
        "type": float, "metavar": "MB/S",
        "help": "bandwidth of throttled storage per node (default: 100)",
    },
    "--side": {"type": int, "metavar": "PX", "help": "side of the images (default: 128 pixels)"},
    "--need": {
        "type": float, "metavar": "N",
        "help": "samples/s that training consumes (default: those of this notebook's last fit)",
    },
    "--seconds": {
        "type": float, "metavar": "S", "help": "seconds to measure in total (default: 20)",
    },
}  # fmt: skip

#: Of these, what says something to a dataset of one's own.
OF_OWN = ("--need", "--seconds")
FLAGS = tuple(_ARGUMENTS)

#: Where a number may lie: least, most.
_BOUNDS = {
    "latency": (0.0, 1e4), "bandwidth": (0.01, 1e6), "side": (8, 2048), "need": (0.01, 1e12),
    "seconds": (0.1, 3600.0),
}  # fmt: skip


def input_arguments(magic: Magic) -> Magic:
    """Declares the options of input as arguments of a magic."""
    for flag, said in reversed(_ARGUMENTS.items()):
        magic = argument(flag, **said)(magic)
    return magic


def question(arguments: Any) -> dict[str, Any]:
    """What was typed, as the ranks' ``loading.measure.Question`` takes it.

    Raises:
        UsageError: it makes no sense.
    """
    check_numbers(arguments)
    _check_names("--formats", arguments.formats, FORMATS)
    _check_names("--storages", arguments.storages, STORAGES)
    if arguments.calls and not 1 <= arguments.calls[0] <= arguments.calls[-1] <= 256:
        raise UsageError("--calls: from 1 to 256 parallel calls")
    if arguments.prefetch and arguments.prefetch[-1] > 64:
        raise UsageError("--prefetch: at most 64 batches")
    asked = {name: getattr(arguments, name) for name in
             ("formats", "storages", "calls", "prefetch", "side", "seconds")}  # fmt: skip
    if arguments.latency is not None:
        asked["latency_s"] = 1e-3 * arguments.latency
    if arguments.bandwidth is not None:
        asked["bytes_per_s"] = 1e6 * arguments.bandwidth
    return {name: value for name, value in asked.items() if value is not None}


def check_numbers(arguments: Any) -> None:
    """Raises UsageError where a number lies outside of what it can be."""
    for name, (least, most) in _BOUNDS.items():
        value = getattr(arguments, name)
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            raise UsageError(f"--{name} {value:g}: from {least:g} to {most:g}")


def check_own(arguments: Any) -> None:
    """Refuses, beside a dataset of one's own, what only generated files have."""
    for flag in FLAGS:
        if flag not in OF_OWN and getattr(arguments, flag[2:]) is not None:
            raise UsageError(
                f"{flag} is of generated files, and {arguments.which} is read as it is"
            )
    check_numbers(arguments)


def _check_names(flag: str, names: list[str] | None, known: tuple[str, ...]) -> None:
    for name in names or ():
        if name not in known:
            near = meant(name, {one: one for one in known})
            raise UsageError(f"{flag} {name}: it is one of {', '.join(known)}{near}")
