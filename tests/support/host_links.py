"""The network between emulated hosts: a switch in user space with rate and delay, or a bridge."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support import init_process

_TUN = Path("/dev/net/tun")


@contextlib.contextmanager
def connect(pids: Sequence[int], rate: int, delay_us: int, folder: Path) -> Iterator[int]:
    """Gives each host an interface ``eth0``, without an address.

    Args:
        pids: of each host a process in its network namespace.
        rate: bits a second of each link.
        delay_us: one way.

    Yields:
        The delay that there is: none without TUN devices and a C compiler.
    """
    with contextlib.ExitStack() as stack:
        if _switch_unavailable():
            delay_us = 0
        if delay_us:
            stack.enter_context(_switch(pids, rate, 1000 * delay_us, folder))
        else:
            stack.enter_context(_bridge(pids, rate))
        for pid in pids:
            _limit(pid, "eth0", rate)
        yield delay_us


def links_unavailable() -> str:
    """Why there can be neither a switch nor a bridge, as a sentence; empty if there can be one."""
    if not _switch_unavailable():
        return ""
    probe = "ip link add br type bridge && ip link add a type veth peer name b"
    run = subprocess.run(["unshare", "--net", "sh", "-c", probe], capture_output=True, text=True)
    if run.returncode == 0:
        return ""
    return f"There is no network for emulated hosts: {run.stderr.strip()}; {_switch_unavailable()}."


def _switch_unavailable() -> str:
    if shutil.which("cc") is None:
        return "there is no C compiler (cc)"
    try:
        os.close(os.open(_TUN, os.O_RDWR))
    except OSError as error:
        return f"{_TUN} cannot be opened ({error.strerror})"
    return ""


@contextlib.contextmanager
def _switch(pids: Sequence[int], rate: int, delay_ns: int, folder: Path) -> Iterator[None]:
    program = folder / "host_switch"
    source = Path(__file__).with_name("host_switch.c")
    subprocess.run(["cc", "-O2", str(source), "-o", str(program)], check=True)
    # A little faster than hosts send, so that a queue forms here only if several send to one.
    words = [str(program), str(1.02 * rate), str(delay_ns), *map(str, pids)]
    with init_process.running(words):
        yield


@contextlib.contextmanager
def _bridge(pids: Sequence[int], rate: int) -> Iterator[None]:
    """In a network namespace of its own, so that the machine has no interface more than before."""
    wait = ["unshare", "--net", "sh", "-c", "echo ready; read -r _"]
    with init_process.running(wait) as middle:
        _ip(middle, "link", "add", "bridge", "type", "bridge")
        _ip(middle, "link", "set", "bridge", "up")
        for number, pid in enumerate(pids, 1):
            port = f"port{number}"
            peer = ("peer", "name", "eth0", "netns", str(pid))
            _ip(middle, "link", "add", port, "type", "veth", *peer)
            _ip(middle, "link", "set", port, "master", "bridge", "up")
            _limit(middle, port, rate)
        yield


def _ip(pid: int, *words: str) -> None:
    subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", *words], check=True)


def _limit(pid: int, interface: str, rate: int) -> None:
    shape = ("tbf", "rate", f"{rate}bit", "burst", "128kb", "latency", "20ms")
    words = ("tc", "qdisc", "add", "dev", interface, "root", *shape)
    subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", *words], check=True)
