"""What a rank measures once a second: its processors and memory, and what its host and GPU have.

A new meter is a row in ``telemetry/meters.json`` and a function here, by the row's letter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tnt_notebook import control_group
from tnt_notebook.comm import World
from tnt_notebook.sizes import size
from tnt_notebook.telemetry.meters import Measure, Sampler

_MIB = 1 << 20
#: What goes over InfiniBand passes by the network of Linux. Words of four bytes.
_INFINIBAND = Path("/sys/class/infiniband")
_WORDS = ("port_rcv_data", "port_xmit_data")


def sampler(world: World) -> Sampler:
    """Of this rank; the first of a host measures what belongs to all of it."""
    rank = world.rank
    on_host = [seat for seat, node in zip(world.seats, world.node, strict=True)
               if node == world.node[rank]]  # fmt: skip
    process = psutil.Process()
    cores = len(os.sched_getaffinity(0))
    measures: dict[str, Measure] = {
        "c": per_second(lambda: 100 * sum(process.cpu_times()[:2]) / cores),
        "m": lambda: process.memory_info().rss / _MIB,
    }
    low: Callable[[], str] | None = None
    if on_host[0] == world.seats[rank]:
        groups = control_group.limiting()
        measures["h"] = lambda: 100 * taken(control_group.memory(groups))
        measures["n"] = per_second(lambda: 1e-3 * _bytes_of_network())
        who = f"rank {on_host[0]}" if len(on_host) == 1 else f"ranks {on_host[0]} to {on_host[-1]}"
        host = f"{world.hosts[rank]} ({who})"

        def low() -> str:
            return host_is_low(host, *control_group.memory(groups))

    return Sampler(world.seats[rank], world.size, measures, low or str)


def add_power_and_gpu(to: Sampler) -> None:
    """Once TensorFlow is loaded: it knows which GPU is this rank's."""
    from tnt_notebook.parallel.observe.meters import Rapl, gpu

    more: dict[str, Measure] = {}
    rapl, own = Rapl(), gpu()
    if "h" in to.measures and rapl.joules() is not None:
        more["p"] = per_second(rapl.joules)
    if own.id:
        more |= {
            "g": own.load,
            "v": lambda: (said := own.memory()) and said[0] / _MIB,
            "w": own.watts,
        }
    to.measures = to.measures | more
    of_host = to.low
    to.low = lambda: "\n".join(filter(None, (of_host(), gpu_is_low(to.rank, own.memory()))))


def per_second(count: Measure) -> Measure:
    """How fast a count grows, since it was asked last; the first time nobody knows."""
    at, before = time.monotonic(), count()

    def rate() -> float | None:
        nonlocal at, before
        (since, then), (at, before) = (at, before), (time.monotonic(), count())
        if before is None or then is None or at <= since:
            return None
        return (before - then) / (at - since)

    return rate


def taken(memory: tuple[int, int]) -> float:
    """The part of it that is not left."""
    left, whole = memory
    return 1 - left / whole


def host_is_low(host: str, left: int, whole: int) -> str:
    """What is said where a host's memory is nearly used up: less than a GiB of it is left, or a
    twentieth where that is more; but of little memory not more than a seventh."""
    if left >= min(whole / 7, max(whole / 20, 1 << 30)):
        return ""
    return (
        f"Host {host} has {_about(left)} of {size(whole)} of memory left; when there is none, "
        "Linux kills a rank. Smaller batches, fewer ranks on a host, or data that tnt.data reads "
        "from files need less."
    )


def gpu_is_low(rank: int, memory: tuple[int, int] | None) -> str:
    """The same of a rank's GPU: less than a GiB, or of little memory a twentieth."""
    if memory is None or memory[1] - memory[0] >= min(memory[1] / 20, 1 << 30):
        return ""
    used, whole = memory
    return (
        f"The GPU of rank {rank} has {_about(whole - used)} of {size(whole)} of memory left. "
        "Smaller batches, fewer ranks on a GPU, --pipeline or a mesh need less."
    )


def _about(count: int) -> str:
    """Bytes in steps, so that the sentence is not another one every second."""
    step = 100 * _MIB
    return f"less than {size(step * (count // step + 1))}"


def _bytes_of_network() -> int:
    """That this host has sent and received."""
    cards = psutil.net_io_counters(pernic=True)
    count = sum(card.bytes_sent + card.bytes_recv for name, card in cards.items() if name != "lo")
    ports = _INFINIBAND.glob("*/ports/*/counters")
    return count + sum(4 * int((port / name).read_text()) for port in ports for name in _WORDS)
