"""Ports for MPI's daemons that no forgotten connection dials.

A ZeroMQ socket whose peer is gone dials the peer's old port ten times a second until it is closed.
A Jupyter server keeps such sockets for kernels that were shut down, and their ports are ephemeral
ones. An Open MPI daemon that is given such a port by the system reads from the caller, blocking,
and starts no rank meanwhile: 30 s, ZeroMQ's handshake timeout, again and again.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _LAST = 10_000, 65_535  # below, well-known services


def undialled() -> tuple[int, int] | None:
    """The larger range of ports, both ends included, that the system gives to nobody by itself;
    None where there is no such range of at least 1,000.
    """
    try:
        low, high = map(int, _EPHEMERAL.read_text().split())
    except OSError:  # not Linux
        return None
    below, above = (_FIRST, low - 1), (high + 1, _LAST)
    widest = max(below, above, key=lambda ends: ends[1] - ends[0])
    return widest if widest[1] - widest[0] >= 1_000 else None


def open_mpi_ports() -> dict[str, str]:
    """Settings, as environment variables, that keep Open MPI's daemons off ephemeral ports.

    One port each: of a range, Open MPI 5 opens every port.
    """
    ends = undialled()
    if ends is None:
        return {}
    daemons, ranks = free_ports(2, *ends)
    return {
        "PRTE_MCA_oob_tcp_dynamic_ipv4_ports": str(daemons),
        "PRTE_MCA_oob_tcp_dynamic_ipv6_ports": str(daemons),
        "PMIX_MCA_ptl_base_ipv4_port": str(ranks),
    }


def free_ports(count: int, low: int, high: int) -> list[int]:
    """Ports at random that nobody listens on here; on other hosts most likely neither."""
    free: list[int] = []
    for port in random.sample(range(low, high + 1), k=high + 1 - low):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            break
    return free
