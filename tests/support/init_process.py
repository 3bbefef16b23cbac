"""Processes that end with this one, however that ends: they read from a pipe that it alone holds.

Such is the first process of an emulated host, with which everything there ends.
"""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence


def begin(name: str, spaces: Sequence[str], script: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts it, and returns when its script has printed ``ready``.

    Args:
        spaces: arguments of unshare: the namespaces of its own.
        script: for bash; after ``ready`` it has to wait for the end of its stdin.

    Raises:
        RuntimeError: it did not start; with what it wrote.
    """
    unshare = ("unshare", *spaces, "--fork", "--kill-child", "--mount-proc")
    return started(name, [*unshare, "bash", "-c", script, f"init of {name}", *arguments])


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[int]:
    """The process number of a program, as `started` takes it, until the end of a ``with`` block."""
    process = started(command[0], command)
    try:
        yield process.pid
    finally:
        end(process, 10)


def started(name: str, command: Sequence[str]) -> subprocess.Popen[str]:
    """Starts any program that prints ``ready`` and waits for the end of its stdin.

    Raises:
        RuntimeError: as `begin`.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    if process.stdout.readline() != "ready\n":
        process.kill()
        raise RuntimeError(f"{name} did not start: {process.stderr.read()}")
    return process


def end(process: subprocess.Popen[str], seconds: float) -> None:
    """Lets it end, or kills it after so many seconds, and waits until it has ended."""
    process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    process.stderr.close()
