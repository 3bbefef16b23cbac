"""The options of ``%tnt_cluster start``, each declared once: as a field of :class:`Request`.

From these rows come the magic's arguments with their help and completion, the keyword arguments of
``Cluster``, the names in a site's file, every check of a value, and the table of the documentation.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from tnt_notebook import protocol
from tnt_notebook.choices import BATCH_SYSTEMS, LAUNCHERS, MAX_LANES, TRANSPORTS, is_rate
from tnt_notebook.cluster.launch import oversubscription
from tnt_notebook.errors import ClusterError

MAX_RANKS = 1 << 16
_YEAR_H = 24 * 365


@dataclass(frozen=True)
class Option:
    """How an option is given, described and checked.

    Attributes:
        kind: of its value: int, float, str, tuple (of texts) or dict (of texts).
        help: what it says, in a line.
        metavar: stands for the value in the help.
        flag: in the notebook; ``--`` and the name unless given.
        typed: whether it can be given in the notebook, and not by a site's file alone.
        site: whether it can be given by a site's file.
        repeated: several values are several flags, rather than one with commas.
        launchers: to which it says something.
        variable: of the environment, which gives it where nobody else does.
        choices: the values there are; any when empty.
        allowed: whether a value can be; of several, each.
        must: what a value must be, to end a sentence.
        name: of the field, the keyword argument, and in a site's file.
        default: where nobody gives it.
    """

    kind: type
    help: str
    metavar: str | None = None
    flag: str = ""
    typed: bool = True
    site: bool = True
    repeated: bool = False
    launchers: tuple[str, ...] = LAUNCHERS
    variable: str | None = None
    choices: tuple[str, ...] = ()
    allowed: Callable[[Any], bool] = lambda _: True
    must: str = ""
    name: str = ""
    default: Any = None

    def check(self, value: Any, origin: str | None = None) -> None:
        """Refuses a value that cannot be.

        Args:
            origin: what stands before the value in the sentence; the flag when None.

        Raises:
            ClusterError: it names the origin and the value, and says what can be.
        """
        several = value.items() if self.kind is dict else value if self.kind is tuple else [value]
        for one in several:
            if self.choices:
                allowed, must = one in self.choices, f"it must be one of {', '.join(self.choices)}"
            else:
                allowed, must = self.allowed(one), self.must
            if not allowed:
                said = _shown(one[0] if self.kind is dict else one)
                raise ClusterError(f"{origin or f'{self.flag} '}{said}: {must}.")


def seconds_of(time: str | float) -> int | None:
    """A time limit in seconds: a number of minutes, ``[days-]hours:minutes:seconds``, or with a
    unit: ``90s``, ``30m``, ``12h``, ``2d``. None if it is none of these.
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
    return int(seconds) if seconds >= 1 else None


def _is_options(text: str) -> bool:
    try:
        shlex.split(text)
    except ValueError:  # a quote without its other half
        return False
    return bool(text.strip()) and "\n" not in text


def _is_variable(item: tuple[str, str]) -> bool:
    name, value = item
    named = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
    return named and not {"\0", "\n"} & set(value)


def _is_lanes(value: int | str) -> bool:  # a variable of the environment is text
    return str(value).isdecimal() and 1 <= int(value) <= MAX_LANES


def _option(kind: type, help: str, metavar: str | None = None, **more: Any) -> Any:
    default = more.pop("default", () if kind is tuple else None)
    metadata = {"option": Option(kind, help, metavar, **more)}
    if kind is dict:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


_COUNT = {"allowed": lambda n: 1 <= n <= MAX_RANKS, "must": f"it must be from 1 to {MAX_RANKS}"}
_NAME = {
    "allowed": lambda name: re.fullmatch(r"[\w.+@:/%=,][\w.+@:/%=,-]*", name) is not None,
    "must": "this is not a valid name",
}
_HOURS = {
    "allowed": lambda hours: 0 <= hours <= _YEAR_H,
    "must": "it must be a number of hours, 0 or more",
}
_JOBS = {"launchers": BATCH_SYSTEMS}


@dataclass(frozen=True)
class Request:
    """Ranks to be started; made by :func:`tnt_notebook.cluster.launch.request.request`.

    The fields are the options, with what their ``help`` says, and what follows from them:

    Attributes:
        inside: in the allocation of that batch system that this process is in, and no new job.
        hosts: of ``ssh``: names, and how many ranks each takes.
        settings: how ranks exchange, as variables of their environment.
    """

    ranks: int = _option(
        int, "ranks; not needed if nodes or an allocation set them", "N", default=1, flag="-n",
        site=False, allowed=_COUNT["allowed"], must=f"a cluster has 1 to {MAX_RANKS} ranks",
    )  # fmt: skip
    launcher: str = _option(
        str,
        "what starts the ranks (default: this machine, or inside a job the nodes of that job)",
        default="local", choices=LAUNCHERS,
    )  # fmt: skip
    nodes: int | None = _option(int, "nodes", "M", **_COUNT)
    per_node: int | None = _option(int, "ranks on each node", "P", **_COUNT)
    gpus: int | None = _option(
        int, "GPUs per node: local rank i sees only GPU i mod G; 0 hides them all", "G",
        allowed=lambda n: n >= 0, must="the number of GPUs per node cannot be negative",
    )  # fmt: skip
    cores: int | None = _option(
        int, "cores per rank (default: an equal share of the node's cores)", "C", **_COUNT
    )
    time: str | None = _option(
        str, "time limit of a job: 90 (minutes), 30m, 12h, 2d, 1:30:00, 1-12:00:00", "T", **_JOBS,
        allowed=lambda time: seconds_of(time) is not None,
        must="write minutes (90), hours (12h) or days-hours:minutes:seconds (1-12:00:00)",
    )  # fmt: skip
    memory: str | None = _option(
        str, "memory of a job on each node: 64G; 0 is all of it", "SIZE", flag="--mem",
        launchers=("slurm",), allowed=lambda size: re.fullmatch(r"\d+[KMGT]?", size) is not None,
        must="write a number of megabytes, or with a unit, as 64G",
    )  # fmt: skip
    partition: str | None = _option(str, "partition or queue of a job", "Q", **_JOBS, **_NAME)
    account: str | None = _option(str, "account or project to charge", "A", **_JOBS, **_NAME)
    modules: tuple[str, ...] = _option(
        tuple,
        "modules to load before the ranks start; if one cannot be loaded, no rank starts",
        "M1,M2", **_NAME,
    )  # fmt: skip
    env: dict[str, str] = _option(  # noqa: RUF009
        dict,
        'environment variable of the ranks; quote blanks: "K=two words"; repeat it for more', "K=V",
        repeated=True, allowed=_is_variable, must="write it as NAME=VALUE, on one line",
    )  # fmt: skip
    extra: tuple[str, ...] = _option(
        tuple,
        'option for the batch system, "--qos=high" (without one, for mpiexec); repeat it for more',
        "OPTION", repeated=True, allowed=_is_options, must="it must be options on one line",
    )  # fmt: skip
    hostfile: str | None = _option(
        str, "hosts for --launcher ssh, one per line: node1 slots=4", "FILE", launchers=("ssh",)
    )
    interface: str | None = _option(
        str, "network interface or address at which ranks reach this host (default: detected)",
        "I",
    )  # fmt: skip
    keep: float = _option(
        float,
        "how long ranks without an owner live on (default: 15 minutes after a kernel's restart or "
        "crash, not at all after its shutdown)",
        "HOURS", default=0.25, **_HOURS,
    )  # fmt: skip
    timeout: float | None = _option(
        float, "seconds in which launched ranks must answer (default: 60, in a job 180; on this "
        "machine, 15 more for each additional rank per core)", "S",
        allowed=lambda s: s > 0, must="it must be a number of seconds above 0",
    )  # fmt: skip
    transport: str | None = _option(
        str, "how ranks reach each other: shm is shared memory, mpi is MPI, gpi is GPI-2 between "
        "nodes; auto (default) is shared memory within a node, and MPI between nodes",
        site=False, choices=tuple(TRANSPORTS), variable=protocol.TRANSPORT,
    )  # fmt: skip
    lanes: int | None = _option(
        int, "progress threads per rank (default: 1)", "L", site=False, variable=protocol.LANES,
        allowed=_is_lanes, must=f"a rank has 1 to {MAX_LANES} progress threads",
    )  # fmt: skip
    link: float | None = _option(
        float, "emulates a slow network: each rank sends this many Mbit/s, as if on its own host",
        "MBIT", site=False, variable=protocol.LINK,
        allowed=is_rate, must="it must be a number of Mbit/s above 0",
    )  # fmt: skip
    preload: str = _option(
        str, "what ranks load in the background once they answer: Keras, so that the first fit "
        "need not wait for it, or nothing, if cells set environment variables that TensorFlow "
        "reads when it loads",
        default="keras", choices=("keras", "nothing"),
    )  # fmt: skip
    ssh: str | None = _option(
        str, "program to call in place of ssh", "PROGRAM", typed=False, launchers=("ssh",)
    )
    queue_hours: float = _option(
        float, "how long a job may wait in the queue", "HOURS", typed=False, default=24.0, **_JOBS,
        **_HOURS,
    )  # fmt: skip
    fit_hours: float = _option(
        float, "how long a fit may continue after the notebook's kernel has ended", "HOURS",
        typed=False, default=168.0, **_HOURS,
    )  # fmt: skip
    silence: float = _option(
        float,
        "seconds without a sign of life after which a rank on another host counts as dead", "S",
        typed=False, default=2.5, allowed=lambda s: s >= 1, must="it must be 1 or more",
        launchers=LAUNCHERS[1:],
    )  # fmt: skip
    inside: bool = False
    hosts: tuple[tuple[str, int], ...] = ()
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def on_other_hosts(self) -> bool:
        """Whether ranks may run on other hosts than this one."""
        return self.launcher != "local"

    @property
    def time_s(self) -> int | None:
        """What a batch system is asked for, in seconds; None: its default."""
        return None if self.time is None else seconds_of(self.time)

    @property
    def timeout_s(self) -> float:
        """Seconds until all ranks must answer, once they have been launched."""
        return self.timeout or oversubscription.timeout_s(self.ranks, self.launcher)


#: By name, in the order of the help.
OPTIONS: dict[str, Option] = {
    f.name: replace(
        option,
        name=f.name,
        flag=option.flag or "--" + f.name.replace("_", "-"),
        default=f.default if f.default is not MISSING else {},
    )
    for f in fields(Request)
    if (option := f.metadata.get("option")) is not None
}


def _shown(value: Any) -> str:
    """As a sentence shows it: in quotes where it could be taken for something else."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if re.fullmatch(r"[^\s'\"]+", text) else repr(text)
