"""Several hosts on one machine: Linux namespaces, joined by a network of a given rate and delay.

    with hosts(2, rate="1gbit", delay_us=100) as rack:
        rack[0].run(["ping", "-c1", "node2"])
        rack[0].run([*rack.mpiexec(ranks_per_host=2), sys.executable, "program.py"])

Every host has its own network, host name, shared memory, process numbers and TMPDIR; files are
shared, as a cluster's home is. The machine itself sees nothing of the network, so that several
racks can stand side by side. All of it ends with this process, however that ends: each host's first
process reads from a pipe that only this process holds, and takes the others along.
"""

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import init_process
from tests.support.host_door import Door
from tests.support.host_links import connect, links_unavailable
from tests.support.rank_pool import mpiexec

_PROGRAMS = ("bash", "ip", "nsenter", "setpriv", "tc", "unshare")
_SPACES = ("--net", "--uts", "--ipc", "--mount", "--pid")

#: The first process of a host, from which it gets name, table of hosts, and the rack's folder.
_INIT = """
hostname "$1"
mount --bind "$2" /etc/hosts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ip link set lo up
echo ready
read -r _
rm -rf "$3"
"""


class Host:
    """One of them.

    Attributes:
        name: ``node1``, ``node2``, ...; the other hosts know it.
        address: IPv4, as text.
        folder: its TMPDIR, which lies in the folder that all share.
    """

    def __init__(self, number: int, rack: Path) -> None:
        self.name = f"node{number}"
        self.address = _address(number)
        self.folder = rack / self.name
        self.folder.mkdir()
        arguments = (self.name, str(rack / "hosts"), str(rack))
        self._init = init_process.begin(self.name, _SPACES, _INIT, *arguments)

    @property
    def pid(self) -> int:
        """A process of this machine in the host's namespaces, but for that of process numbers."""
        return self._init.pid

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen:
        """As `subprocess.Popen`, on this host. When it is killed, the program gets SIGTERM."""
        return subprocess.Popen(self._words(command), **self._options(options))

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess:
        """As `subprocess.run`, on this host."""
        return subprocess.run(self._words(command), **self._options(options))

    def crash(self) -> None:
        """Kills all its processes at once; they have no time to say good-bye."""
        self._init.kill()
        self._init.wait()

    def close(self) -> None:
        """Ends it, and waits until it has ended."""
        init_process.end(self._init, 10)

    def _words(self, command: Sequence[str]) -> list[str]:
        spaces = f"/proc/{self.pid}/ns"
        return [
            *("nsenter", *(f"{space}={spaces}/{_file(space)}" for space in _SPACES)),
            *("setpriv", "--pdeathsig", "TERM", "--", *command),
        ]

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        own = {"TMPDIR": str(self.folder), "HOSTNAME": self.name}
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        return {**options, "env": {**(options.get("env") or os.environ), **own}}


class Rack(list[Host]):
    """The hosts of one network.

    Attributes:
        folder: shared by all hosts, and removed with them.
        agent: a program that is called as ssh is, ``agent node2 command``, on any of the hosts.
        delay_us: one way, in microseconds; 0 where the machine offers no means for what was asked.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.agent = folder / "agent"
        self.delay_us = 0

    def mpiexec(self, ranks_per_host: int) -> list[str]:
        """The command of Open MPI that starts ranks on all hosts.

        To be run on one of them. The ranks see the environment of the command; they are bound to
        no cores.
        """
        names = [f"{host.name}:{ranks_per_host}" for host in self]
        command = mpiexec(ranks_per_host * len(names))
        over = ["--prtemca", "plm_ssh_agent", str(self.agent), "-H", ",".join(names)]
        return [command[0], *over, *command[1:]]


@contextlib.contextmanager
def hosts(n: int, rate: str = "1gbit", delay_us: int = 100) -> Iterator[Rack]:
    """n hosts that see each other.

    Args:
        rate: of each link between a host and the switch, in each direction: a number with ``kbit``,
            ``mbit`` or ``gbit``.
        delay_us: one way between two hosts, in microseconds.

    Where there can be none, `unavailable` says why.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="tnt-hosts-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        names = "".join(f"{_address(i)} node{i}\n" for i in range(1, n + 1))
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        rack = Rack(folder)
        for number in range(1, n + 1):
            rack.append(Host(number, folder))
            stack.callback(rack[-1].close)
        pids = [host.pid for host in rack]
        rack.delay_us = stack.enter_context(connect(pids, _bits(rate), delay_us, folder))
        for host in rack:
            host.run(["ip", "address", "add", f"{host.address}/24", "dev", "eth0"], check=True)
            host.run(["ip", "link", "set", "eth0", "up"], check=True)
        door = stack.enter_context(Door(folder / "door", {host.name: host for host in rack}))
        _write_agent(rack.agent, door.address)
        yield rack


@functools.cache
def unavailable() -> str:
    """Why there can be no emulated hosts here, as a sentence; empty where there can be."""
    absent = [program for program in _PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"Emulated hosts need {', '.join(absent)} (packages util-linux and iproute2)."
    if os.geteuid() != 0:
        return "Emulated hosts need root, or `unshare --user --map-root-user` around the command."
    probe = ["unshare", *_SPACES, "--fork", "--mount-proc", "mount", "-t", "tmpfs", "x", "/dev/shm"]
    run = subprocess.run(probe, capture_output=True, text=True)
    if run.returncode:
        return f"Emulated hosts are not allowed here: {run.stderr.strip()}."
    return links_unavailable()


#: On tests that want some.
needed = pytest.mark.skipif(
    bool(unavailable()), reason=f"this machine does not allow it: {unavailable()}"
)


def _address(number: int) -> str:
    return f"10.77.0.{number}"


def _file(space: str) -> str:
    """Of a namespace, under /proc/PID/ns. `unshare` itself stays out of the new pid space."""
    name = space.removeprefix("--")
    return {"mount": "mnt", "pid": "pid_for_children"}.get(name, name)


def _bits(rate: str) -> int:
    match = re.fullmatch(r"([\d.]+)(kbit|mbit|gbit)", rate)
    if match is None:
        raise ValueError(f"{rate} is not a rate such as 100mbit")
    return int(float(match[1]) * {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[match[2]])


def _write_agent(path: Path, door: Path) -> None:
    program = Path(__file__).with_name("host_agent.py")
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{program}" "{door}" "$@"\n')
    path.chmod(0o755)
