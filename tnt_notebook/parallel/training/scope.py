"""The scope in which Keras trains distributed: what ``%%tnt_fit`` puts around a cell."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook import comm
from tnt_notebook.comm import World, ops, stop
from tnt_notebook.error_text import brief
from tnt_notebook.errors import ModelError, NothingToDoError
from tnt_notebook.keras import distribution as by_keras
from tnt_notebook.keras.replaced import replaced
from tnt_notebook.keras.step_functions import is_validation_of_fit
from tnt_notebook.parallel.checkpoint.config import Checkpoint
from tnt_notebook.parallel.checkpoint.run import RunCheckpoints
from tnt_notebook.parallel.consistency import agreement, seeds
from tnt_notebook.parallel.data.readers import damage
from tnt_notebook.parallel.observe.progress import Report
from tnt_notebook.parallel.training import auto_plan, on_batch, run, saving
from tnt_notebook.parallel.training.keras_distribution import division_by
from tnt_notebook.parallel.training.session import Session
from tnt_notebook.plan.fit_options import FitOptions, takes_fit_options

#: The methods of keras.Model that run distributed inside a session, and who runs them.
METHODS = {
    "fit": run, "evaluate": run, "predict": run, "train_on_batch": on_batch,
    "test_on_batch": on_batch, "predict_on_batch": on_batch, "save": saving, "save_weights": saving,
}  # fmt: skip

_ORIGINALS: dict[str, Callable[..., Any]] = {name: getattr(keras.Model, name) for name in METHODS}

_current: Session | None = None

#: Held by the thread that is in a call; a call may make others, as a callback does.
_at_work = threading.RLock()

#: Whether a call or a block has ended with an error here, after the last one began.
_has_raised = False

ops.library()  # a TensorFlow that does not fit is found out before any training
by_keras.install(comm.rank, lambda: comm.world().size)


@takes_fit_options
@contextlib.contextmanager
def distributed(
    report: Report | None = None,
    *,
    timeout: float | None = None,
    quiet: bool = True,
    checkpoint: Checkpoint | None = None,
    **options: Any,
) -> Iterator[Session]:
    """Ordinary Keras code in this block trains over all ranks. Every rank must enter it.

    Args:
        report: called on rank 0 with a frame a few times a second.
        timeout: seconds that ranks wait for one message.
        quiet: whether ``verbose="auto"`` prints nothing (there is a live view).
        checkpoint: keeps the state of training, and goes on from it; see ``tnt.Checkpoint``.
        options: of :class:`FitOptions`.

    Raises:
        CheckpointError: the folder of checkpoints cannot be used, or holds another run.
        SuspendedError: training was left with a checkpoint, on request.
        NothingToDoError: the block called neither fit, evaluate nor predict.
        DisagreementError: the ranks did not make the same calls.
    """
    global _current
    over = whole_world()
    usual_timeout = over.timeout_s
    if timeout is not None:
        over.set_timeout(timeout)
    session = Session(over, FitOptions(**options), report, quiet)
    outer, _current = _current, session
    try:
        agreement.agree(over, {"call": "begin"})
        seeds.synchronise(over)
        if checkpoint is not None:
            session.checkpoints = RunCheckpoints(over, checkpoint)
        with patched(session):
            yield session
        agreement.agree(over, {"call": "reach the end of the cell"})
        if not session.runs:
            raise NothingToDoError(
                "The cell calls neither fit, evaluate nor predict of a Keras model, so there is "
                "nothing to distribute. For other code on the ranks use %%tnt."
            )
        if session.checkpoints is not None:
            session.checkpoints.finish()
    except BaseException as error:
        _free_peers(over, error)
        raise
    finally:
        _current = outer
        session.close()
        over.set_timeout(usual_timeout)
        stop.forget()  # a request for this cell is not one for the next


def whole_world() -> World:
    """The world of this process. If it has failed, and a program goes on all the same, as after an
    exception that it caught, it works again. Collective then."""
    global _has_raised
    over = comm.world()
    # A rank that has heard of a failure only must not wait for one that does not come.
    if over.failure and _has_raised:
        over.recover()
    _has_raised = False
    return over


def _free_peers(over: World, error: BaseException) -> None:
    global _has_raised
    _has_raised = True
    if not getattr(error, "peers_know", False):
        comm.abort(f"rank {over.rank}: {brief(error)}")


def current_session() -> Session | None:
    """The session of the ``distributed`` block that runs, if one does."""
    return _current


def call(session: Session, method: str, model: keras.Model, *args: Any, **kwargs: Any) -> Any:
    """Runs a method of a Keras model, over all ranks or, inside a callback, on this one alone."""
    original = _ORIGINALS[method]
    if is_validation_of_fit(kwargs):  # all ranks are there
        return original(model, *args, **kwargs)
    if session.is_alone:
        functions = session.planned.get(model, session).functions.get(id(model))
        with functions.removed() if functions else contextlib.nullcontext():
            return original(model, *args, **kwargs)
    with _in_one_thread(method):
        return _over_all(session, method, model, *args, **kwargs)


@contextlib.contextmanager
def _in_one_thread(method: str) -> Iterator[None]:
    """Refuses a call while another thread of this rank is in one: it would be given the other's
    steps, and ranks could not tell apart what they exchange."""
    if not _at_work.acquire(blocking=False):
        raise ModelError(
            f"{method} was called in a thread while another thread of rank {comm.rank()} is in a "
            "call of a model over all ranks. One such call runs at a time: wait for the first, or "
            "call the second in another cell."
        )
    try:
        yield
    finally:
        _at_work.release()


def _over_all(session: Session, method: str, model: keras.Model, *args: Any, **kwargs: Any) -> Any:
    whole_world()
    session.renew()
    bound = inspect.signature(_ORIGINALS[method]).bind(model, *args, **kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    del arguments["self"]
    arguments.update(arguments.pop("kwargs", {}))
    with _errors_told(session.over, method):
        own = auto_plan.session_of(session, model, method, arguments, call)
        with own.reported_by(session):
            return _run(own, method, model, arguments)


def _run(session: Session, method: str, model: keras.Model, arguments: dict[str, Any]) -> Any:
    is_run = METHODS[method] is not saving
    divided = _distributed(session, model) if is_run else contextlib.nullcontext()
    with patched(session), divided:
        try:
            return getattr(METHODS[method], method)(session, model, _ORIGINALS[method], **arguments)
        finally:
            if id(model) in session.functions:  # between calls the model is an ordinary one
                session.functions[id(model)].remove()


@contextlib.contextmanager
def patched(session: Session) -> Iterator[None]:
    """Sends the methods of every Keras model through ``session``."""
    with contextlib.ExitStack() as stack:
        for name in METHODS:
            through = functools.partial(_through, session, name)
            stack.enter_context(replaced(keras.Model, name, through))
        yield


def _through(session: Session, name: str, _: Any, model: keras.Model, *args: Any, **kw: Any) -> Any:
    return call(session, name, model, *args, **kw)


@contextlib.contextmanager
def _distributed(session: Session, model: keras.Model) -> Iterator[None]:
    """Inside, a call goes by the distribution of Keras that is set, if one is."""
    distribution = by_keras.distribution_of(model)
    with contextlib.ExitStack() as stack:
        division = None
        if distribution is not None:
            division = division_by(distribution, model, session.over.rank, session.over.size)
            stack.enter_context(by_keras.followed())
        stack.enter_context(session.divided(model, division))
        yield


@contextlib.contextmanager
def _errors_told(over: World, method: str) -> Iterator[None]:
    """Tells other ranks why this one leaves a call. TensorFlow wraps the reason for which
    communication ended, and what is wrong with a file; says it plainly."""
    try:
        yield
    except tf.errors.OpError as error:
        if over.failure and not over.failed_here:
            told = over.error(method)
            _free_peers(over, told)
            raise told from None
        damaged = damage.behind(str(error))
        _free_peers(over, damaged or error)
        if damaged is not None:
            raise damaged from None
        raise
    except BaseException as error:
        _free_peers(over, error)
        raise
