"""The end of a cluster: its job, its processes, its folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

from tnt_notebook.warden.processes import end_processes
from tnt_notebook.warden.protocol import ASKED_S, CANCEL_S, Plan


def remove(folders: list[str]) -> None:
    """Removes folders of a cluster; one that is already gone is fine."""
    for folder in folders:
        if os.path.basename(folder).startswith("tnt-"):
            shutil.rmtree(folder, ignore_errors=True)


def end_job(ask: list[str], cancel: list[str], listing: list[str]) -> bool:
    """Ends the job of a cluster and waits until it is gone; whether it is.

    Args:
        ask: a command that asks the job's script to end by itself, so that it can clean up on all
            its hosts; it fails where the job does not run.
        cancel: the command that cancels the job.
        listing: a command that prints something as long as the job is there.
    """
    begin = time.monotonic()
    asked = bool(ask) and _run(ask)[0]
    while True:
        waited = time.monotonic() - begin
        if not asked or waited > ASKED_S:
            _run(cancel)
        if not "".join(_run(listing)[1:]).strip():
            return True
        if waited > ASKED_S + CANCEL_S:
            return False
        time.sleep(0.5)


def end(plan: Plan) -> list[int | str]:
    """Ends a cluster and removes its folders; returns what could not be ended."""
    left: list[int | str] = []
    if plan["cancel"] and not end_job(plan["ask"], plan["cancel"], plan["listing"]):
        left.append(" ".join(plan["cancel"]))
    left += end_processes(plan["id"])
    if plan["sweep"]:
        _run(plan["sweep"])
    remove(plan["folders"])
    return left


def _run(command: list[str]) -> tuple[bool, str, str]:
    """Whether a command succeeds, what it prints, and its errors if it does not."""
    try:
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CANCEL_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return False, "", str(error)
    return (True, run.stdout, "") if run.returncode == 0 else (False, run.stdout, run.stderr)
