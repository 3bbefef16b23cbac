"""What a person asks for when engines are to be started: checked, and as plain data."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tnt_notebook.choices import LAUNCHERS
from tnt_notebook.cluster.hostfile import read_hostfile
from tnt_notebook.errors import ClusterError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[\w.+@:/%=,][\w.+@:/%=,-]*")
_MOST_RANKS = 1 << 16


@dataclass(frozen=True)
class Request:
    """Engines to be started.

    Attributes:
        launcher: one of ``choices.LAUNCHERS``.
        ranks: how many.
        inside: in the allocation of that batch system that this process is in, and no new job.
        nodes, per_node: on how many nodes, and how many ranks on each; None: the launcher decides.
        gpus: GPUs per node that its ranks share; 0 hides all, None leaves GPUs alone.
        cores: cores per rank; a node's cores are shared evenly when None.
        time_s: what a batch system is asked for, in seconds; None: its default.
        partition, account: of a batch system.
        modules: loaded on the nodes before engines start.
        env: variables of the engines.
        extra: more options for the batch system (or for mpiexec where there is none).
        hosts: of ``ssh``: names, and how many ranks each takes.
        keep_s: how long engines that nobody owns live on, in seconds.
        timeout_s: until all ranks must answer, once they have been launched.
        settings: how ranks exchange, as variables of the engines.
    """

    launcher: str
    ranks: int
    nodes: int | None = None
    per_node: int | None = None
    gpus: int | None = None
    cores: int | None = None
    time_s: int | None = None
    partition: str | None = None
    account: str | None = None
    modules: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    hosts: tuple[tuple[str, int], ...] = ()
    keep_s: float = 0.0
    timeout_s: float = 60.0
    settings: dict[str, str] = field(default_factory=dict)
    inside: bool = False

    @property
    def on_other_hosts(self) -> bool:
        """Whether ranks may run on other hosts than this one."""
        return self.launcher != "local"

    def as_json(self) -> dict[str, Any]:
        """As it is kept beside the engines."""
        return asdict(self)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Request:
        """What :meth:`as_json` gave, after a way through a file."""
        texts = {name: tuple(said[name]) for name in ("modules", "extra")}
        hosts = tuple((str(name), int(slots)) for name, slots in said["hosts"])
        return cls(**{**said, **texts, "hosts": hosts})


def request(
    ranks: int | None,
    *,
    launcher: str = "local",
    inside: bool = False,
    nodes: int | None = None,
    per_node: int | None = None,
    gpus: int | None = None,
    cores: int | None = None,
    time: str | float | None = None,
    partition: str | None = None,
    account: str | None = None,
    modules: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    extra: Sequence[str] = (),
    hostfile: str | os.PathLike[str] | None = None,
    keep: float = 0.0,
    timeout: float | None = None,
    settings: Mapping[str, str] | None = None,
) -> Request:
    """Checks what is asked for, and completes it.

    Args:
        inside: whether the ranks go into the allocation that this process is in.
        time: of the batch system: minutes, or text such as ``90``, ``1:30:00``, ``2-12:00:00``.
        hostfile: of ``ssh``: a file with a line for each host.
        keep: hours that engines live on without an owner.
        The others are those of :class:`Request`.

    Raises:
        ClusterError: a value that cannot be; it names the option and says what can.
    """
    if launcher not in LAUNCHERS:
        raise ClusterError(f"--launcher {launcher}: it must be one of {', '.join(LAUNCHERS)}.")
    for name, number in {
        "-n": ranks,
        "--nodes": nodes,
        "--per-node": per_node,
        "--cores": cores,
    }.items():
        if number is not None and number < 1:
            least = "a cluster needs at least one rank" if name == "-n" else "it must be at least 1"
            raise ClusterError(f"{name} {number}: {least}.")
        if number is not None and number > _MOST_RANKS:
            raise ClusterError(f"{name} {number}: it must be at most {_MOST_RANKS}.")
    if gpus is not None and gpus < 0:
        raise ClusterError(f"--gpus {gpus}: the number of GPUs per node cannot be negative.")
    _refuse_others(launcher, time=time, partition=partition, account=account)
    if launcher == "sge" and not inside:
        _refuse_nodes(extra, {"--nodes": nodes, "--per-node": per_node})
    hosts = _hosts(launcher, hostfile, per_node)
    if hosts and nodes is not None:
        hosts = hosts[:nodes]
    ranks, nodes = _shape(launcher, ranks, nodes, per_node, hosts)
    if ranks > _MOST_RANKS:
        raise ClusterError(
            f"{ranks} ranks are more than the {_MOST_RANKS} that a cluster may have."
        )
    if timeout is not None and not timeout > 0:
        raise ClusterError(f"--timeout {timeout:g}: it must be a number of seconds above 0.")
    for what, words in (
        ("--modules", modules),
        ("--partition", [partition]),
        ("--account", [account]),
    ):
        for word in words:
            if word is not None and not _WORD.fullmatch(word):
                raise ClusterError(f"{what} {word!r}: this is no name.")
    for option in extra:
        if "\n" in option or not option.strip() or not _closed(option):
            raise ClusterError(f"--extra {option!r}: it must be options on one line.")
    for name, value in (env or {}).items():
        if not _VARIABLE.fullmatch(name) or "\0" in value or "\n" in value:
            raise ClusterError(f"--env {name}: write it as NAME=VALUE, on one line.")
    batch = launcher not in ("local", "ssh")
    return Request(
        launcher=launcher,
        ranks=ranks,
        nodes=nodes,
        per_node=per_node,
        gpus=gpus,
        cores=cores,
        time_s=None if time is None else seconds_of(time),
        partition=partition,
        account=account,
        modules=tuple(modules),
        env=dict(env or {}),
        extra=tuple(extra),
        hosts=hosts,
        keep_s=hours_to_seconds(keep),
        timeout_s=timeout if timeout is not None else 180.0 if batch else 60.0,
        settings=dict(settings or {}),
        inside=inside,
    )


def hours_to_seconds(keep: float) -> float:
    """How long a cluster without an owner is kept.

    Raises:
        ClusterError: it is no such time.
    """
    if not 0 <= keep <= 24 * 365:
        raise ClusterError(f"--keep {keep:g}: it must be a number of hours, 0 or more.")
    return keep * 3600.0


def seconds_of(time: str | float) -> int:
    """A time limit in seconds: a number of minutes, ``[days-]hours:minutes:seconds``, or with a
    unit: ``90s``, ``30m``, ``12h``, ``2d``.

    Raises:
        ClusterError: it is none of these.
    """
    text = str(time).strip()
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "": 60}
    seconds = 0.0
    # Of several parts, the first one may be any number.
    clock = r"(?:([0-9]{1,4})-)?([0-9]{1,4}):([0-5]?[0-9])(?::([0-5]?[0-9]))?"
    if single := re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd]?)", text):
        seconds = float(single[1]) * units[single[2]]
    elif parts := re.fullmatch(clock, text):
        days, first, second, third = (int(part or 0) for part in parts.groups())
        if parts[4] is None and parts[1] is None:  # as Slurm reads it: minutes:seconds
            seconds = first * 60 + second
        else:
            seconds = days * 86400 + first * 3600 + second * 60 + third
    if not seconds >= 1:
        raise ClusterError(
            f"--time {text}: write minutes (90), hours (12h) or days-hours:minutes:seconds "
            "(1-12:00:00)."
        )
    return int(seconds)


def _closed(text: str) -> bool:
    """Whether every quote has its other half."""
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True


def _refuse_others(launcher: str, **of_batch: Any) -> None:
    """Options that say nothing to a launcher are errors, and not forgotten in silence."""
    if launcher in ("local", "ssh"):
        for name, value in of_batch.items():
            if value is not None:
                raise ClusterError(
                    f"--{name} is for a batch system: add --launcher slurm, pbs, lsf or sge."
                )


def _refuse_nodes(extra: Sequence[str], given: Mapping[str, int | None]) -> None:
    """What Grid Engine cannot be asked for."""
    wrong = [name for name, number in given.items() if number is not None]
    if wrong and not any(option.startswith("-pe ") for option in extra):
        raise ClusterError(
            f"{wrong[0]}: in Grid Engine a parallel environment decides how ranks spread over "
            'nodes. Name one: --extra "-pe NAME SLOTS" (qconf -spl lists them).'
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
                "or say --per-node."
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
            f"-n {ranks} is not --nodes {nodes} times --per-node {per_node}. Say two of the three."
        )
    if nodes is not None and ranks < nodes:
        raise ClusterError(f"-n {ranks} --nodes {nodes}: each node needs a rank.")
    if nodes is None and per_node is not None:
        return ranks, -(-ranks // per_node)
    return ranks, nodes
