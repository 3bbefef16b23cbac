"""The cell of ``%%tnt_fit`` on a rank: run it distributed, report frames, keep the model.

Only plain data goes back to the notebook: an error travels as its name, text and traceback.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipyparallel.engine.datapub import publish_data
from IPython import get_ipython

from tnt_notebook import comm, protocol
from tnt_notebook.comm import stop
from tnt_notebook.engine import meters, preload
from tnt_notebook.error_text import source_line
from tnt_notebook.errors import ModelError, StoppedError
from tnt_notebook.jupyter.notebook import last_traceback
from tnt_notebook.jupyter.outlet import shortened
from tnt_notebook.jupyter.rank_kernel import run_cell
from tnt_notebook.protocol import Published
from tnt_notebook.telemetry import Frame, State, activities, run_writer
from tnt_notebook.telemetry.activities import Activities
from tnt_notebook.telemetry.meters import Sampler

if TYPE_CHECKING:
    from tnt_notebook.parallel.training.session import Run

_TOUCH_S = 20.0
_LOOK_S = 1.0

#: What was trained last, and in which run: its folder.
_model: tuple[str, Any] | None = None
_last: tuple[str, dict[str, Any]] | None = None


def install() -> None:
    """Makes signals requests of the running fit: to end after its current step, or to leave it
    there with a checkpoint, as before the time limit of a batch system."""
    signal.signal(protocol.STOP, lambda signum, frame: stop.end.set())
    signal.signal(protocol.SUSPEND, lambda signum, frame: stop.leave.set())


def run_fit_cell(
    cell: str, options: dict[str, Any], kept: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Runs a cell with every fit, evaluate and predict in it distributed over all ranks.

    Args:
        cell: ordinary Keras code.
        options: keyword arguments of ``tnt_notebook.distributed``, those of checkpoints as a dict,
            the others as :meth:`tnt_notebook.plan.fit_options.FitOptions.of` takes them; and
            ``fit_as``, of a study, what :class:`tnt_notebook.parallel.training.fit_as.FitAs` takes.
        kept: where and as what rank 0 keeps the frames on disk: keyword arguments of
            :func:`tnt_notebook.telemetry.run_writer.begin`, with the folder as text.

    Returns:
        ``{"history", "epochs", "stopped", "diverged", "runs"}`` of the last fit and of all runs, or
        ``{"error": {"ename", "evalue", "traceback", "line"}}`` when cell or training failed here.
    """
    global _last, _model
    _last = None
    with _busy() if comm.rank() == 0 else contextlib.nullcontext():
        result, runs = run_distributed(cell, options, kept)
    folder = kept["folder"] if kept else ""
    if runs:
        fits = [run for run in runs if run.kind == "fit"]
        _model = (folder, (fits or runs)[-1].model)
    _last = (folder, result)
    return result


def result_of(run: str) -> dict[str, Any]:
    """What :func:`run_fit_cell` gave for a run, for a notebook that has not begun it.

    Args:
        run: the folder of the run.
    """
    if _last is None or _last[0] != run:
        text = f"the ranks have no result of {Path(run).name}: they were started anew since"
        return {"error": {"ename": "ModelError", "evalue": text, "traceback": ""}}
    return _last[1]


def run_distributed(
    cell: str, options: dict[str, Any], kept: dict[str, Any] | None
) -> tuple[dict[str, Any], list[Run]]:
    """Runs a cell distributed over the ranks of this process's world, and tells what they do.

    Args:
        cell, options, kept: as of :func:`run_fit_cell`.

    Returns:
        What :func:`run_fit_cell` returns; and what has run, nothing if cell or training failed.
    """
    world = comm.world()
    sampler = meters.sampler(world)
    log = activities.Log(world.seats[world.rank], world.size, _publish, sampler)
    with activities.logged(log):
        return _run(cell, options, kept, sampler)


def _run(
    cell: str, options: dict[str, Any], kept: dict[str, Any] | None, sampler: Sampler
) -> tuple[dict[str, Any], list[Run]]:
    stop.forget()  # now: a person may press Stop while TensorFlow is loading
    activities.begin("import")
    preload.finish()
    from tnt_notebook.parallel.checkpoint.config import Checkpoint
    from tnt_notebook.parallel.exchange.named import exchange_of
    from tnt_notebook.parallel.training.fit_as import FitAs
    from tnt_notebook.parallel.training.scope import distributed
    from tnt_notebook.plan.fit_options import FitOptions

    meters.add_power_and_gpu(sampler)
    activities.begin("build")
    shell = get_ipython()
    options = dict(options)
    result, stopped = None, False
    try:
        if options.get("exchange") is not None:
            options["exchange"] = exchange_of(options["exchange"], own=shell.user_ns.get)
        options |= vars(FitOptions.of(options))
        if "checkpoint" in options:
            options["checkpoint"] = Checkpoint(**{"run": cell, **options["checkpoint"]})
        as_study = FitAs(**options.pop("fit_as", {}))
        with _kept(kept) as report, distributed(report=report, **options) as session:
            session.fit_as = as_study
            result = run_cell(shell, cell)
            result.raise_error()
    except StoppedError:
        stopped = True
    except BaseException as error:  # Ctrl-C and sys.exit too: the notebook must be told
        return {"error": _describe(error, result)}, []
    fits = [run for run in session.runs if run.kind == "fit"]
    history = dict(fits[-1].history) if fits else {}
    return {
        "history": history,
        "epochs": len(next(iter(history.values()), [])),
        "stopped": stopped or any(run.stopped for run in session.runs),
        "diverged": next((run.diverged for run in session.runs if run.diverged), ""),
        "runs": [{"kind": run.kind, "history": dict(run.history)} for run in session.runs],
    }, session.runs


def _publish(news: Activities) -> None:
    publish_data({Published.ACTIVITIES: news})


@contextlib.contextmanager
def _kept(begin: dict[str, Any] | None) -> Iterator[Callable[[Frame], None]]:
    """Publishes frames, and keeps them in a folder of this rank's host.

    The folder is made with the first frame, so by rank 0 only. What goes wrong with it is said once
    and does no harm to training.
    """
    writer: run_writer.Writer | None = None
    failed = begin is None
    ended: State = "failed"

    def report(frame: Frame) -> None:
        nonlocal writer, failed
        publish_data({Published.FRAME: frame})
        if failed or begin is None:
            return
        try:
            if writer is None:
                writer = run_writer.begin(
                    **{**begin, "folder": Path(begin["folder"])}, stops_on=protocol.STOP
                )
            writer.write(frame)
        except (OSError, ValueError) as error:
            failed = True
            print(f"The trace of this run cannot be kept in {begin['folder']}: {error}")

    try:
        yield report
        ended = "finished"
    finally:
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.close(None if ended == "finished" else "failed")


def model_bytes(run: str) -> bytes:
    """The model of the last ``%%tnt_fit``, trained, as the bytes of a ``.keras`` file.

    Args:
        run: the folder of its run.

    Raises:
        ModelError: no cell of ``%%tnt_fit`` has ended well on these ranks, or another one since.
    """
    if _model is None:
        raise ModelError("No %%tnt_fit has finished on these ranks, so there is no model yet.")
    last, model = _model
    if run != last:
        raise ModelError(
            f"The ranks have the model of {Path(last).name}, which has ended since, and no longer "
            f"that of {Path(run).name}. Ask for .model before the next fit, or save it in the cell."
        )
    with tempfile.TemporaryDirectory(prefix="tnt-model-") as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    """Inside, a file in the cluster's folder is touched again and again: its warden then keeps the
    ranks, also without an owner. And a checkpoint is asked for when the job's time is nearly over,
    which the job's script is told by the batch system."""
    home = os.environ.get(protocol.FOLDER)
    if home is None:
        yield
        return
    file, time_is_up = Path(home) / protocol.BUSY, Path(home) / protocol.TIME_IS_UP
    done = threading.Event()

    def touch() -> None:
        touched = 0.0
        while True:
            if time.monotonic() - touched > _TOUCH_S:
                touched = time.monotonic()
                with contextlib.suppress(OSError):  # the folder is gone: the end is near
                    file.touch(0o600)
            if time_is_up.exists():
                stop.leave.set()
                break
            if done.wait(_LOOK_S):
                break

    thread = threading.Thread(target=touch, name="tnt-busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        file.unlink(missing_ok=True)


def _describe(error: BaseException, result: Any) -> dict[str, Any]:
    """The error as data, with the cell's own traceback (not our frames) when the cell raised."""
    raised = None if result is None else result.error_before_exec or result.error_in_exec
    lines = [] if raised is None else last_traceback()
    if raised is not error and lines:
        lines += traceback.format_exception_only(error)
    # Of an error in the syntax the rest says a file that nobody knows, and the line.
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return {
        "ename": type(error).__name__,
        "evalue": shortened(said),
        "traceback": "\n".join(map(shortened, lines)).rstrip(),
        "line": shortened(source_line(error)),
    }
