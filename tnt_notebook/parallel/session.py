"""The scope in which Keras trains distributed: what ``%%tnt_fit`` puts around a cell."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook import comm
from tnt_notebook.comm import World, ops
from tnt_notebook.errors import NothingToDoError, brief
from tnt_notebook.parallel import agreement, on_batch, run, seeds
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.parallel.exchange.allreduce import bucketed_allreduce
from tnt_notebook.parallel.exchange.buckets import MIB, BucketSizes
from tnt_notebook.parallel.functions import DistributedFunctions
from tnt_notebook.parallel.progress import Progress, Report
from tnt_notebook.parallel.run import Run
from tnt_notebook.parallel.stop import forget_stop, stop_requested

#: The methods of keras.Model that run distributed inside a session.
METHODS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")


_current: Session | None = None


@dataclass
class Session:
    """What the calls of one cell, or of one :class:`tnt_notebook.Model`, share.

    Attributes:
        runs: finished runs, in order.
        alone: whether Keras is to work on this rank alone just now, as inside a callback.
        progress: of the call that is running.
    """

    over: World
    exchange: Exchange
    report: Report | None = None
    quiet: bool = False
    runs: list[Run] = field(default_factory=list)
    alone: bool = False
    progress: Progress | None = None
    functions: dict[int, DistributedFunctions] = field(default_factory=dict)

    @contextlib.contextmanager
    def on_this_rank_alone(self) -> Iterator[None]:
        before, self.alone = self.alone, True
        try:
            yield
        finally:
            self.alone = before

    def call(self, method: str, model: keras.Model, *args: Any, **kwargs: Any) -> Any:
        """Runs a method of a Keras model, over all ranks or on this one alone."""
        original = _ORIGINALS[method]
        if self.alone or kwargs.get("_use_cached_eval_dataset"):
            functions = self.functions.get(id(model))
            inside_fit = kwargs.get("_use_cached_eval_dataset")
            with functions.removed() if functions and not inside_fit else contextlib.nullcontext():
                return original(model, *args, **kwargs)
        bound = inspect.signature(original).bind(model, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        del arguments["self"]
        arguments.update(arguments.pop("kwargs", {}))
        with _errors_of_peers(self.over, method), patched(self):
            function = getattr(on_batch if method.endswith("_on_batch") else run, method)
            return function(self, model, original, **arguments)

    def functions_of(self, model: keras.Model) -> DistributedFunctions:
        """The distributed functions of a model, in place."""
        functions = self.functions.get(id(model))
        if functions is None:
            functions = DistributedFunctions(
                model, self.over, self.exchange, self._take_news, stop_requested
            )
            self.functions[id(model)] = functions
        functions.install()
        return functions

    def _take_news(self, model: keras.Model, phase: str, votes: float, samples: int) -> None:
        progress = self.progress
        if progress is not None and phase == progress.phase:  # not the validation of a fit
            progress.count(samples)
        if votes > 0:
            model.stop_training = model.stop_evaluating = True
            if progress is not None:
                progress.stopped = True

    def close(self) -> None:
        """Gives all models their own functions back."""
        for functions in self.functions.values():
            functions.remove()
        self.functions.clear()


@contextlib.contextmanager
def distributed(
    report: Report | None = None,
    exchange: Exchange | None = None,
    bucket_mb: float | None = None,
    timeout: float | None = None,
    quiet: bool = True,
) -> Iterator[Session]:
    """Ordinary Keras code in this block trains over all ranks. Every rank must enter it.

    Args:
        report: called on rank 0 with a frame a few times a second.
        exchange: how gradients are exchanged; default: bucketed allreduce.
        bucket_mb: size of a bucket of gradients in MiB.
        timeout: seconds that ranks wait for one message.
        quiet: whether ``verbose="auto"`` prints nothing (there is a live view).

    Raises:
        ModelError: the block called neither fit, evaluate nor predict, or not alike on all ranks.
    """
    global _current
    over = comm.world()
    usual_timeout = over.timeout_s
    if timeout is not None:
        over.set_timeout(timeout)
    forget_stop()
    session = Session(over, exchange or default_exchange(bucket_mb), report, quiet)
    outer, _current = _current, session
    try:
        agreement.agree(over, {"call": "begin"})
        seeds.synchronise(over)
        with patched(session):
            yield session
        agreement.agree(over, {"call": "reach the end of the cell"})
        if not session.runs:
            raise NothingToDoError(
                "The cell calls neither fit, evaluate nor predict of a Keras model, so there is "
                "nothing to distribute. For other code on the ranks use %%tnt."
            )
    except BaseException as error:
        if not getattr(error, "peers_know", False):
            comm.abort(f"rank {over.rank}: {brief(error)}")
        raise
    finally:
        _current = outer
        session.close()
        over.set_timeout(usual_timeout)


def current_session() -> Session | None:
    """The session of the ``distributed`` block that runs, if one does."""
    return _current


@contextlib.contextmanager
def patched(session: Session) -> Iterator[None]:
    """Sends the methods of every Keras model through ``session``."""
    before = {name: vars(keras.Model).get(name) for name in METHODS}
    for name in METHODS:
        setattr(keras.Model, name, _through(session, name))
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                delattr(keras.Model, name)
            else:
                setattr(keras.Model, name, own)


def default_exchange(bucket_mb: float | None = None) -> Exchange:
    """Bucketed allreduce, with buckets of ``bucket_mb`` MiB."""
    if bucket_mb is not None and not bucket_mb > 0:
        raise ValueError(f"bucket_mb must be positive, not {bucket_mb}")
    caps = BucketSizes() if bucket_mb is None else BucketSizes(cap=int(bucket_mb * MIB))
    return bucketed_allreduce(caps)


def _through(session: Session, name: str) -> Callable[..., Any]:
    original = _ORIGINALS[name]

    def method(model: keras.Model, *args: Any, **kwargs: Any) -> Any:
        return session.call(name, model, *args, **kwargs)

    method.__name__, method.__doc__ = name, original.__doc__
    return method


@contextlib.contextmanager
def _errors_of_peers(over: World, method: str) -> Iterator[None]:
    """TensorFlow wraps the reason for which communication ended; says it plainly."""
    try:
        yield
    except tf.errors.OpError:
        if over.failure and not over.failure.startswith(f"rank {over.rank}:"):
            raise over.error(method) from None
        raise


_ORIGINALS: dict[str, Callable[..., Any]] = {name: getattr(keras.Model, name) for name in METHODS}

ops.library()  # a TensorFlow that does not fit is found out before any training
