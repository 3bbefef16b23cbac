"""Clusters and runs as plain data, from their files, for the panel."""

from __future__ import annotations

import os
import time
from typing import Any

import psutil

from tnt_notebook import warden
from tnt_notebook.cluster.files import fit_note
from tnt_notebook.cluster.files import record as records
from tnt_notebook.cluster.files.folder import tail
from tnt_notebook.cluster.files.record import Known
from tnt_notebook.cluster.files.words import described_owner, described_state
from tnt_notebook.cluster.launch.options import OPTIONS
from tnt_notebook.cluster.life.status import RankStatus, rank_statuses
from tnt_notebook.telemetry import archive, run_folder
from tnt_notebook.telemetry.archive import RunInfo

LATEST_RUNS = 8  # the others are in %tnt_trace list
LINES = 500
_UNSEEN = "not seen from here"


def overview() -> dict[str, Any]:
    """The clusters of this user, those of other notebooks and of jobs too, and runs: those that
    they train now, and the latest."""
    clusters = [_cluster(known) for known in records.listed()]
    return {
        "time": time.time(),
        "clusters": clusters,
        "runs": [
            {"id": run.id, "title": run.title, "ranks": run.ranks, "began": run.began,
             "state": run.state}
            for run in _latest_runs({cluster["run"] for cluster in clusters})
        ],
    }  # fmt: skip


def options_of_start() -> dict[str, Any]:
    """What a form needs to type ``%tnt_cluster start``: its options, and this host's cores."""
    typed = [option for option in OPTIONS.values() if option.typed]
    options = [
        {"flag": option.flag, "help": option.help, "choices": option.choices,
         "metavar": option.metavar, "number": option.kind in (int, float),
         "repeated": option.repeated, "launchers": option.launchers,
         "default": option.default or ""}
        for option in typed
    ]  # fmt: skip
    return {"options": options, "cores": len(os.sched_getaffinity(0))}


def log(cluster: str, which: str) -> dict[str, str]:
    """The end of what a rank wrote, by its number, or the ``launcher``.

    Raises:
        ClusterError: there is no such cluster.
        ValueError: ``which`` is neither.
    """
    folder = records.find(cluster).folder
    path = folder.launcher_log if which == "launcher" else folder.rank_log(int(which))
    return {"text": tail(path, LINES)}


def _latest_runs(trained: set[str | None]) -> list[RunInfo]:
    """The latest first; only their folders are read."""
    base, ids = run_folder.base(), archive.ids()
    shown = [name for name in ids[:-LATEST_RUNS] if name in trained] + ids[-LATEST_RUNS:]
    return [run for name in reversed(shown) if (run := archive.about(base / name)) is not None]


def _cluster(known: Known) -> dict[str, Any]:
    record, kept = known.record, known.kept
    busy = kept is not None and kept["busy"]
    note = fit_note.read(known.folder)
    return {
        "id": record.id, "ranks": record.ranks, "launcher": record.launcher, "job": record.job,
        "host": record.host, "here": record.here, "began": record.began,
        "kept": kept is not None, "state": described_state(known), "busy": busy,
        "ready": record.state == "ready",
        "owner": described_owner(known), "owned": kept is not None and kept["owner"] is not None,
        "kernel": record.notebook.removeprefix("kernel-"),
        "run": None if note is None else note.run.rpartition("/")[2],
        "rows": _rows(known, busy),
    }  # fmt: skip


def _rows(known: Known, busy: bool) -> list[dict[str, Any]]:
    """A row for each rank; processes of other hosts, and of other containers, are not seen."""
    record = known.record
    if not record.here or record.pids != warden.pids_count_in():
        return [
            {"rank": seat["rank"], "host": seat["host"], "state": _UNSEEN} for seat in record.seats
        ]
    everyone = range(record.ranks) if busy else ()
    return [_row(row) for row in rank_statuses(record.seats, everyone, ())]


def _row(row: RankStatus) -> dict[str, Any]:
    unknown = row.memory is None and row.state != "dead"
    state = _UNSEEN if unknown else "alive" if row.state == "idle" else row.state
    return {
        "rank": row.rank, "host": row.host, "state": state, "pid": row.pid, "gpu": row.gpu,
        "cores": row.cores, "memory": row.memory, "cpu_s": _cpu_s(row),
    }  # fmt: skip


def _cpu_s(row: RankStatus) -> float | None:
    """Seconds of a core that a rank of this host has used so far."""
    if row.memory is None:
        return None
    try:
        return sum(psutil.Process(row.pid).cpu_times()[:2])
    except psutil.NoSuchProcess:
        return None
