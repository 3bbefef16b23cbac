"""From what was typed, and what a site has chosen, to a request: checked and completed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tnt_notebook.choices import BATCH_SYSTEMS
from tnt_notebook.cluster.launch import defaults, systems
from tnt_notebook.cluster.launch.gpus import check_gpus
from tnt_notebook.cluster.launch.hostfile import read_hostfile
from tnt_notebook.cluster.launch.network import address_for
from tnt_notebook.cluster.launch.options import MAX_RANKS, OPTIONS, Request
from tnt_notebook.errors import ClusterError

RANK_BYTES = 100 << 20  # of a rank, with what relays its signals, before it has loaded anything


def asked(ranks: int | None, options: Mapping[str, Any]) -> Request:
    """What a person asks for here: what was typed goes first, then what the site's file says.

    Args:
        ranks: how many; None where nodes or an allocation say it.
        options: what was typed, by the names in
            :data:`~tnt_notebook.cluster.launch.options.OPTIONS`.

    Raises:
        ClusterError: a wrong value, or a broken file of defaults.
        TypeError: there is no such option.
    """
    typed = {name: value for name, value in options.items() if value is not None}
    site = defaults.load()
    if systems.allocation(os.environ) and not typed.keys() & {"launcher", "hostfile"}:
        for name in ("launcher", "hostfile"):  # inside of a job its nodes are the ones to use
            site.pop(name, None)
    both = {**site, **typed}
    launcher, inside = systems.chosen(both.get("launcher"), both.get("hostfile"), os.environ)
    site = {name: value for name, value in site.items() if _means(name, launcher, inside)}
    both = {**site, **typed, "launcher": launcher}
    if "env" in typed:
        both["env"] = {**site.get("env", {}), **typed["env"]}
    if ranks is None and inside and not both.keys() & {"nodes", "per_node"}:
        ranks = systems.tasks(launcher, os.environ)
    found = request(ranks, inside=inside, **both)
    if found.interface is not None:
        address_for((), found.interface)
    if launcher == "local":
        _check_this_machine(found)
    return found


def _means(name: str, launcher: str, inside: bool) -> bool:
    """Whether an option of a site's file is for this launcher: what is for jobs is for new ones."""
    for_jobs = OPTIONS[name].launchers == BATCH_SYSTEMS
    of_several = name == "nodes" and launcher == "local"
    return launcher in OPTIONS[name].launchers and not (for_jobs and inside) and not of_several


def request(ranks: int | None = None, *, inside: bool = False, **options: Any) -> Request:
    """Checks what is asked for, and completes it.

    Args:
        ranks: how many; None where nodes or hosts say it.
        inside: whether the ranks go into the allocation that this process is in.
        options: by the names in :data:`~tnt_notebook.cluster.launch.options.OPTIONS`.

    Raises:
        ClusterError: a value that cannot be; it names the option and says what can.
        TypeError: there is no such option.
    """
    said = {"ranks": ranks, "launcher": "local", **options}
    said = {name: value for name, value in said.items() if value is not None}
    if unknown := sorted(said.keys() - OPTIONS.keys()):
        raise TypeError(f"a cluster has no option {unknown[0]!r}; it has {', '.join(OPTIONS)}")
    for name, value in said.items():
        OPTIONS[name].check(value)
    launcher = said["launcher"]
    for name in said:
        _check_launcher(name, launcher)
    hosts = _hosts(launcher, said.get("hostfile"), said.get("per_node"))
    nodes, per_node = said.get("nodes"), said.get("per_node")
    if hosts and nodes is not None:
        hosts = hosts[:nodes]
    ranks, nodes = _shape(launcher, ranks, nodes, per_node, hosts)
    if ranks > MAX_RANKS:
        raise ClusterError(f"{ranks} ranks are more than the {MAX_RANKS} that a cluster may have.")
    said = {name: OPTIONS[name].kind(value) for name, value in said.items()}
    follows = {"ranks": ranks, "nodes": nodes, "hosts": hosts, "settings": _settings(said)}
    found = Request(**{**said, **follows, "inside": inside})
    if launcher in systems.SYSTEMS and not inside:
        systems.SYSTEMS[launcher].check(found)
    return found


def _check_launcher(name: str, launcher: str) -> None:
    """Options that say nothing to a launcher are errors, and not forgotten in silence."""
    option = OPTIONS[name]
    if launcher in option.launchers or not option.typed:
        return
    if option.launchers == BATCH_SYSTEMS:
        *most, last = BATCH_SYSTEMS
        raise ClusterError(
            f"{option.flag} is for a batch system: add --launcher {', '.join(most)} or {last}."
        )
    means = ", ".join(option.launchers)
    raise ClusterError(f"{option.flag} goes with --launcher {means}, and not with {launcher}.")


def _settings(said: Mapping[str, Any]) -> dict[str, str]:
    """How ranks exchange, as they learn it: from their environment, which asks here, too.

    Raises:
        ClusterError: a variable here says what cannot be.
    """
    settings = {}
    for name, option in OPTIONS.items():
        if option.variable is None:
            continue
        value = said.get(name)
        if value is None and (value := os.environ.get(option.variable)) is not None:
            option.check(value, f"{option.variable}=")
        if value is not None:
            settings[option.variable] = str(value)
    return settings


def _check_this_machine(asked: Request) -> None:
    available = len(os.sched_getaffinity(0))
    if asked.cores is not None and asked.cores > available:
        raise ClusterError(
            f"--cores {asked.cores}: this machine offers 1 to {available} cores to a rank."
        )
    check_gpus(asked.gpus)
    room = max(1, psutil.virtual_memory().total // RANK_BYTES)
    if asked.ranks > room:
        raise ClusterError(
            f"-n {asked.ranks}: the memory of this machine is enough for {room} ranks. For more "
            "use --launcher ssh --hostfile FILE, or a batch system."
        )


def _hosts(
    launcher: str, hostfile: str | os.PathLike[str] | None, per_node: int | None
) -> tuple[tuple[str, int], ...]:
    if hostfile is None:
        if launcher == "ssh":
            raise ClusterError("--launcher ssh needs --hostfile FILE, with a line for each host.")
        return ()
    if launcher != "ssh":
        raise ClusterError(f"--hostfile goes with --launcher ssh, and not with {launcher}.")
    found = read_hostfile(Path(os.path.expanduser(hostfile)))
    return tuple((name, per_node or slots) for name, slots in found)


def _shape(
    launcher: str,
    ranks: int | None,
    nodes: int | None,
    per_node: int | None,
    hosts: Sequence[tuple[str, int]],
) -> tuple[int, int | None]:
    """Ranks and nodes, where one follows from the other."""
    if launcher == "local" and (nodes or 1) > 1:
        raise ClusterError(
            f"--nodes {nodes}: --launcher local is for this machine. For several use "
            "--launcher ssh --hostfile FILE, or a batch system."
        )
    if hosts:
        room = sum(slots for _, slots in hosts)
        if nodes is not None and nodes > len(hosts):
            raise ClusterError(f"--nodes {nodes}: the hostfile has {len(hosts)} hosts.")
        if ranks is not None and ranks > room:
            raise ClusterError(
                f"-n {ranks}: the hosts of the hostfile take {room} ranks. Give them more slots, "
                "or set --per-node."
            )
        if nodes is not None and ranks is not None and ranks < nodes:
            raise ClusterError(f"-n {ranks} --nodes {nodes}: each node needs a rank.")
        return ranks or room, len(hosts)
    if ranks is None:
        if nodes is None and per_node is None:
            raise ClusterError("start needs the number of ranks: -n 4, or --nodes 2 --per-node 4.")
        return (nodes or 1) * (per_node or 1), nodes or 1
    if nodes is not None and per_node is not None and ranks != nodes * per_node:
        raise ClusterError(
            f"-n {ranks} is not --nodes {nodes} times --per-node {per_node}. Give two of the three."
        )
    if nodes is not None and ranks < nodes:
        raise ClusterError(f"-n {ranks} --nodes {nodes}: each node needs a rank.")
    if nodes is None and per_node is not None:
        return ranks, -(-ranks // per_node)
    return ranks, nodes
