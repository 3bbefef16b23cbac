"""The first process of an emulated host: everything there ends with it, and it with this process.

It reads from a pipe that only this process holds, so it ends however this process does.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def begin(name: str, spaces: Sequence[str], script: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts it, and returns when its script has printed ``ready``.

    Args:
        spaces: arguments of unshare: the namespaces of its own.
        script: for bash; after ``ready`` it has to wait for the end of its stdin.

    Raises:
        RuntimeError: it did not start; with what it wrote.
    """
    process = subprocess.Popen(
        [
            *("unshare", *spaces, "--fork", "--kill-child", "--mount-proc"),
            *("bash", "-c", script, f"init of {name}", *arguments),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    if process.stdout.readline() != "ready\n":
        process.kill()
        raise RuntimeError(f"{name} did not start: {process.stderr.read()}")
    return process


def end(process: subprocess.Popen[str], seconds: float) -> None:
    """Lets it end, or kills it after so many seconds, and waits until it has ended."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
