"""Hostfiles: the hosts that engines may use, as Open MPI and MPICH write them."""

from __future__ import annotations

import re
from pathlib import Path

from tnt_notebook.errors import ClusterError

_MOST_BYTES = 1 << 20
_MOST_SLOTS = 1 << 16
#: ``node1``, ``node1:4``, ``node1 slots=4``, ``node1 slots=4 max_slots=8``.
_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253}[A-Za-z0-9])?)"
    r"(?::(?P<colon>\d{1,9}))?"
    r"(?P<words>(?:\s+[A-Za-z_-]+\s*=\s*\S+)*)"
)
_SLOTS = re.compile(r"(?<![\w-])slots\s*=\s*(\S+)")
_NUMBER = re.compile(r"[0-9]{1,9}")


def read_hostfile(path: Path) -> list[tuple[str, int]]:
    """Hosts in order, and how many ranks each takes; a host in two lines takes those of both.

    Raises:
        ClusterError: the file cannot be read, or a line cannot be understood; it says which.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ClusterError(f"--hostfile {path}: {error.strerror}.") from None
    except ValueError as error:  # a NUL in the name
        raise ClusterError(f"--hostfile {str(path)!r}: {error}.") from None
    if len(content) > _MOST_BYTES:
        raise ClusterError(f"--hostfile {path}: it is larger than 1 MiB, too large for a hostfile.")
    return parsed(content.decode(errors="replace"), str(path))


def parsed(text: str, origin: str) -> list[tuple[str, int]]:
    """What :func:`read_hostfile` gives, of a text.

    Args:
        origin: what errors call it.
    """
    hosts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        found = _LINE.fullmatch(line)
        said = found and _SLOTS.search(found["words"])
        slots = said[1] if said else (found and found["colon"]) or "1"
        if not found or not _NUMBER.fullmatch(slots) or not 1 <= int(slots) <= _MOST_SLOTS:
            raise ClusterError(
                f"{origin}, line {number}: {line[:80]!r} is not a host. Write a name, and how many "
                "ranks it takes: node1 slots=4"
            )
        hosts[found["name"]] = hosts.get(found["name"], 0) + int(slots)
    if not hosts:
        raise ClusterError(
            f"{origin}: there is no host in it. Write one on each line: node1 slots=4"
        )
    return list(hosts.items())
