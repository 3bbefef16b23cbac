"""The control groups of this process, in which Linux counts and limits what processes take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import psutil

#: Where the groups for memory are: lines of /proc/self/cgroup, and folders; of cgroups 1 and 2.
_GROUPS = (
    (r"^\d+:(?:.*,)?memory(?:,.*)?:/(.*)$", Path("/sys/fs/cgroup/memory")),
    (r"^0::/(.*)$", Path("/sys/fs/cgroup")),
)
_LIMITS = ("memory.limit_in_bytes", "memory.max")
_USED = {"memory.limit_in_bytes": "memory.usage_in_bytes", "memory.max": "memory.current"}
#: Of what is used: files that were read, and can be read again.
_CACHED = re.compile(r"^(?:total_)?inactive_file (\d+)$", re.MULTILINE)


def files(names: tuple[str, str]) -> Iterator[Path]:
    """Files of this process's group for memory, and of those that hold it, innermost first.

    Args:
        names: of the file, in cgroups 1 and in cgroups 2.
    """
    own = Path("/proc/self/cgroup").read_text()
    for (pattern, root), name in zip(_GROUPS, names, strict=True):
        if found := re.search(pattern, own, re.MULTILINE):
            # In a container the path may be the host's, and the root this container's group.
            folder = root / found[1]
            holding = [parent for parent in folder.parents if root in parent.parents]
            for group in dict.fromkeys((folder, *holding, root)):
                if (group / name).exists():
                    yield group / name


def limiting() -> list[Path]:
    """The limits of those groups that may have less memory than the host."""
    host = psutil.virtual_memory().total
    said = ((limit, limit.read_text().strip()) for limit in files(_LIMITS))
    return [limit for limit, most in said if most.isdecimal() and int(most) < host]


def memory_left() -> int:
    """Bytes that processes of this group can still take, by what its host has and its limits."""
    return memory()[0]


def share_of(rank: int, hosts: Sequence[str]) -> int:
    """Bytes that a rank has, of what is there in all, where those of its host have as much each.

    Args:
        hosts: of all ranks.
    """
    return memory()[1] // hosts.count(hosts[rank])


def memory(groups: Iterable[Path] | None = None) -> tuple[int, int]:
    """Those bytes; and what is there in all, where they are fewest: on the host, or in a group.

    Args:
        groups: what :func:`limiting` gave; default: it is found out, which takes longer.
    """
    host = psutil.virtual_memory()
    left = [(int(host.available), int(host.total))]
    for limit in limiting() if groups is None else groups:
        most = limit.read_text().strip()
        if most.isdecimal():  # else "max"
            used = int(limit.with_name(_USED[limit.name]).read_text())
            cached = _CACHED.findall(limit.with_name("memory.stat").read_text())
            there = int(most) - used + max(map(int, cached), default=0)
            left.append((max(0, there), int(most)))
    return min(left)
