"""By which address other hosts reach the controller on this one."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import psutil

from tnt_notebook.errors import ClusterError

LOOPBACK = "127.0.0.1"
#: Of the documentation, so nobody's: only the way there is asked for, nothing is sent.
_ANYWHERE = "192.0.2.1"
_ASKED = 8  # names to look up, each of which may take its time


def address_for(hosts: Sequence[str], interface: str | None = None) -> tuple[str, str]:
    """The address of this host that other hosts can reach, and a sentence that says why that one.

    Args:
        hosts: names or addresses of hosts that will connect; the first that is known decides.
        interface: a name (``ib0``) or an address, where a person has chosen.

    Raises:
        ClusterError: there is no such interface, or this host has no network.
    """
    if interface is not None:
        return _chosen(interface), "as was asked"
    for host in hosts[:_ASKED]:
        if own := _way_to(host):
            return own, f"on the way to {host}{_named(own)}"
    if own := _way_to(_ANYWHERE):
        return own, f"on the default route{_named(own)}"
    others = [a for _, a in _addresses() if not a.startswith("127.")]
    if not others:
        raise ClusterError(
            "This host has no network by which others could reach it, only the loopback. Use "
            "--launcher local, or name an interface: --interface eth0."
        )
    return others[0], f"the first there is{_named(others[0])}"


def _chosen(interface: str) -> str:
    addresses = _addresses()
    found = [a for name, a in addresses if interface in (name, a)]
    if not found:
        known = ", ".join(f"{name} ({address})" for name, address in addresses)
        raise ClusterError(f"--interface {interface}: this host has {known or 'none'}.")
    return found[0]


def _way_to(host: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except (OSError, UnicodeError):  # no such host, or no way there
            return None
        return probe.getsockname()[0]


def _named(address: str) -> str:
    return next((f" ({name})" for name, own in _addresses() if own == address), "")


def _addresses() -> list[tuple[str, str]]:
    return [
        (name, entry.address)
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family == socket.AF_INET
    ]
