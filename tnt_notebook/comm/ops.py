"""Collectives inside TensorFlow graphs: asynchronous ops over the C++ backend.

An op runs when its inputs are ready, whatever else the graph does, and holds no thread while
messages travel. It is named by a *channel*, a number fixed when the graph is traced and the same
on all ranks, so that ranks may run ops in any order.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from tnt_notebook.comm import _kernels
from tnt_notebook.comm.channels import GRAPH, Range
from tnt_notebook.comm.communicator import Communicator
from tnt_notebook.comm.current import world
from tnt_notebook.errors import CommunicationError
from tnt_notebook.keras.tensorflow import is_independent, run_independently
from tnt_notebook.telemetry.events import EVENT_KINDS
from tnt_notebook.telemetry.exchanges import Exchange, Purpose

#: dtypes that can be reduced.
DTYPES = (tf.float32, tf.float64, tf.bfloat16, tf.float16, tf.int32, tf.int64)

#: dtypes that can be sent and gathered, bit by bit.
MOVED_DTYPES = (
    *DTYPES, tf.bool, tf.uint8, tf.int8, tf.int16, tf.uint16, tf.uint32, tf.uint64, tf.complex64,
    tf.complex128,
)  # fmt: skip

_scope = threading.local()


@contextlib.contextmanager
def channels(range_: Range = GRAPH) -> Iterator[None]:
    """Counts the channels of a range inside the ``with`` block.

    Put it around what is traced as one function: the ranks trace the same ops in the same order,
    and so agree on channels without talking; a function that is traced again gets the same ones.
    """
    before = getattr(_scope, "counter", None)
    _scope.counter = map(range_.__getitem__, itertools.count())
    try:
        yield
    finally:
        _scope.counter = before


def skip_channels(count: int) -> None:
    """Counts channels of ops that other ranks make here, and this one does not."""
    for _ in range(count):
        _next_channel()


@tf.autograph.experimental.do_not_convert
def allreduce(
    tensors: Sequence[tf.Tensor],
    scale: tf.Tensor | float = 1.0,
    reduction: str = "sum",
    label: str = "",
    over: Communicator | None = None,
    wire: tf.DType | str | None = None,
    purpose: Purpose = Purpose.OTHER,
) -> list[tf.Tensor]:
    """The element-wise reduction over ranks of ``scale * tensor``, for a bucket of tensors.

    Args:
        tensors: one bucket; all of one of :data:`DTYPES`, any shapes, the same on all ranks.
        scale: scalar of this rank; 0 contributes zeros whatever the tensors hold. A weighted mean
            is the sum with ``scale = weight / sum of weights``. Integers take 0 and 1 only.
        reduction: ``"sum"``, ``"min"``, ``"max"`` or ``"product"``.
        label: what is exchanged, for error messages; the same on all ranks.
        over: the world, or a group of its ranks; default: this process's world. The same of the
            other ops.
        wire: the float dtype in which elements travel and are reduced; default: that of the
            tensors. ``tf.bfloat16`` halves what float32 gradients send, and rounds them.
        purpose: what it is for, for the view.

    Returns:
        Tensors of the same shapes and dtype, with the same bits on all ranks.
    """
    tensors = list(tensors)
    with on_next_channel() as channel:
        reduced: list[tf.Tensor] = library().tnt_allreduce(
            inputs=tensors,
            wire=tensors[0].dtype if wire is None else tf.as_dtype(wire),
            scale=tf.cast(scale, tf.float64),
            reduction=reduction,
            **address(over, channel, label or f"allreduce of {len(tensors)} tensors", purpose),
        )
    run_when_ready(reduced[0], channel)
    return reduced


@tf.autograph.experimental.do_not_convert
def reduce_to_owner(
    tensors: Sequence[tf.Tensor],
    owners: Sequence[int],
    scale: tf.Tensor | float = 1.0,
    label: str = "",
    over: Communicator | None = None,
    wire: tf.DType | str | None = None,
) -> list[tf.Tensor | None]:
    """The sum over ranks of ``scale * tensor``, of each tensor of a bucket on one rank only.

    Args:
        tensors, scale, label, over, wire: as of :func:`allreduce`.
        owners: of each tensor the rank that gets its sum, among those of ``over``.

    Returns:
        Of each tensor the sum, of the same shape and dtype, on its owner; ``None`` on others.
    """
    over, order = over or world(), _by_owner(owners)
    with on_next_channel() as channel:
        reduced = library().tnt_reduce_to_owner(
            inputs=[tensors[i] for i in order],
            wire=tensors[0].dtype if wire is None else tf.as_dtype(wire),
            scale=tf.cast(scale, tf.float64),
            owners=[owners[i] for i in order],
            **address(over, channel, label or f"sum of {len(tensors)} tensors on their owners"),
        )
    run_when_ready(reduced[0], channel)
    result: list[tf.Tensor | None] = [None] * len(tensors)
    for i, tensor in zip(order, reduced, strict=True):
        if owners[i] == over.rank:
            result[i] = tf.ensure_shape(tensor, tensors[i].shape)
    return result


@tf.autograph.experimental.do_not_convert
def share_owned(
    tensors: Sequence[tf.Tensor],
    owners: Sequence[int],
    label: str = "",
    over: Communicator | None = None,
) -> list[tf.Tensor]:
    """A bucket of tensors as their owners have them, on all ranks.

    Args:
        tensors: as of :func:`allreduce`; what others than the owners have is not looked at.
        owners: of each tensor the rank that has it, among those of ``over``.

    Returns:
        Tensors of the same shapes and dtype.
    """
    order = _by_owner(owners)
    with on_next_channel() as channel:
        shared = library().tnt_share_owned(
            inputs=[tensors[i] for i in order],
            owners=[owners[i] for i in order],
            **address(over, channel, label or f"{len(tensors)} tensors of their owners"),
        )
    run_when_ready(shared[0], channel)
    result = list(tensors)
    for i, tensor in zip(order, shared, strict=True):
        result[i] = tensor
    return result


def _by_owner(owners: Sequence[int]) -> list[int]:
    return sorted(range(len(owners)), key=owners.__getitem__)


@tf.autograph.experimental.do_not_convert
def allgather(tensor: tf.Tensor, label: str = "", over: Communicator | None = None) -> tf.Tensor:
    """The tensors of all ranks of ``over``, concatenated along the first axis in rank order.

    Args:
        tensor: one of :data:`MOVED_DTYPES`, at least one axis; the first may differ between ranks.
    """
    with on_next_channel() as channel:
        gathered = library().tnt_allgather(
            input=tensor, **address(over, channel, label or "allgather")
        )
    run_when_ready(gathered, channel)
    gathered.set_shape([None, *tensor.shape[1:]])
    return gathered


#: Of some dimensions of an array, from which index up to which.
Box = Mapping[int, tuple[int, int]]


@tf.autograph.experimental.do_not_convert
def move(
    tensor: tf.Tensor,
    pieces: Sequence[tuple[int, int, Box]],
    given: Box,
    wanted: Box,
    fill: float = 0.0,
    label: str = "",
    over: Communicator | None = None,
    purpose: Purpose = Purpose.OTHER,
) -> tf.Tensor:
    """From what each rank has of an array to what it needs, in one exchange: a gather, a halo
    exchange, an all-to-all of blocks; pieces that overlap are added up.

    Args:
        tensor: this rank's box of the array, of one of :data:`MOVED_DTYPES`; of :data:`DTYPES`
            where pieces overlap. Of dimensions that boxes do not name, ranks have all, the same
            number on each; it need not be known before the op runs.
        pieces: those of all ranks: who has it, who needs it, by their indices in ``over``, and the
            box, by indices of the whole array. The same list on all ranks.
        given: the box of ``tensor``.
        wanted: the box of the result.
        fill: what the result has where no piece comes to it.
        purpose: what it is for, for the view.

    Returns:
        A tensor of the dtype, and of the shape but for the dimensions of the boxes.

    Raises:
        ValueError: a piece does not lie in the box that it is to be taken from, or to come to.
    """
    over, dims = over or world(), sorted(wanted)
    label = label or "move"
    _check_pieces(pieces, given, wanted, dims, over, label)
    with on_next_channel() as channel:
        moved: tf.Tensor = library().tnt_move(
            input=tensor,
            fill=tf.cast(fill, tensor.dtype),
            dims=dims,
            pieces=[n for source, to, box in pieces for n in (source, to, *_ends(box, dims))],
            given=_ends(given, dims),
            wanted=_ends(wanted, dims),
            **_address(over, channel, label),
        )
    _note(channel, _moved(pieces, label, purpose, over))
    run_when_ready(moved, channel)
    shape = tensor.shape.as_list()
    for dim, (begin, end) in wanted.items():
        shape[dim] = end - begin
    moved.set_shape(shape)
    return moved


def _moved(
    pieces: Sequence[tuple[int, int, Box]], label: str, purpose: Purpose, over: Communicator
) -> Exchange:
    """What this rank does of a move."""
    rank = over.rank
    sizes = [(s, t, math.prod(e - b for b, e in box.values())) for s, t, box in pieces]
    given = sum(size for source, _, size in sizes if source == rank)
    got = sum(size for _, target, size in sizes if target == rank)
    kept = sum(size for source, target, size in sizes if source == target == rank)
    others = {t for s, t, _ in sizes if s == rank} | {s for s, t, _ in sizes if t == rank}
    ranks = sorted(over.members[other] for other in others - {rank})
    parts = (1 - kept / whole if whole else 0.0 for whole in (given, got))
    return Exchange(label, purpose, tuple(ranks), *parts)


def _ends(box: Box, dims: Sequence[int]) -> list[int]:
    return [*(box[dim][0] for dim in dims), *(box[dim][1] for dim in dims)]


def _check_pieces(
    pieces: Sequence[tuple[int, int, Box]], given: Box, wanted: Box, dims: Sequence[int],
    over: Communicator, label: str,
) -> None:  # fmt: skip
    for source, target, box in pieces:
        for rank, outer in ((source, given), (target, wanted)):
            if not 0 <= rank < over.size:
                raise ValueError(f"{label}: there is no rank {rank} among {over.size}")
            if rank == over.rank and not all(
                outer[dim][0] <= box[dim][0] <= box[dim][1] <= outer[dim][1] for dim in dims
            ):
                raise ValueError(
                    f"{label}: the piece {dict(box)} from rank {source} to rank {target} is not in"
                    f" the box {dict(outer)} of rank {rank}"
                )


@tf.autograph.experimental.do_not_convert
def send(
    tensor: tf.Tensor, peer: int, label: str = "", over: Communicator | None = None
) -> tf.Operation:
    """Sends a tensor to another rank, which takes it by :func:`receive` on the same channel.

    Args:
        tensor: one of :data:`MOVED_DTYPES`.
        peer: the rank, among those of ``over``.

    Returns:
        The op. It is done when the tensor is on its way, or waits behind another one of its
        channel: it keeps the tensor itself. What fails later is said by the next exchange.
    """
    with on_next_channel() as channel:
        op = library().tnt_send(input=tensor, peer=peer, **address(over, channel, label or "send"))
    run_when_ready(op, channel)
    return op


class Posted(NamedTuple):
    """Room for a tensor that may be on its way here."""

    room: tf.Tensor
    ticket: tf.Tensor


@tf.autograph.experimental.do_not_convert
def post(
    shape: Any, dtype: tf.DType, peer: int, label: str = "", over: Communicator | None = None
) -> Posted:
    """Makes room for a tensor that another rank gives to :func:`send` on the same channel.

    It arrives while other ops run; :func:`take` waits for it.

    Args:
        shape: as it was sent, int64 [axes]: a tensor, or numbers.
        dtype: one of :data:`MOVED_DTYPES`.
        peer: the rank it comes from, among those of ``over``.
    """
    with on_next_channel() as channel:
        posted = library().tnt_post(
            shape=tf.cast(shape, tf.int64),
            T=dtype,
            peer=peer,
            **address(over, channel, label or "receive"),
        )
    run_when_ready(posted.room, channel)
    return Posted(posted.room, posted.ticket)


@tf.autograph.experimental.do_not_convert
def take(posted: Posted) -> tf.Tensor:
    """The tensor that was posted, when it has arrived. Once for each :func:`post`."""
    with tf.device("/CPU:0"):
        tensor: tf.Tensor = library().tnt_take(room=posted.room, ticket=posted.ticket)
    run_independently(tensor)
    return tensor


def receive(
    shape: Any, dtype: tf.DType, peer: int, label: str = "", over: Communicator | None = None
) -> tf.Tensor:
    """:func:`post` and :func:`take`."""
    return take(post(shape, dtype, peer, label, over))


@tf.autograph.experimental.do_not_convert
def clock(
    begin: tf.Tensor | int = 0, kind: str = "", number: int = 0, over: Communicator | None = None
) -> tf.Tensor:
    """What time it is when the op runs; int64, nanoseconds of CLOCK_MONOTONIC.

    Args:
        begin: since when the event was that goes to the trace now.
        kind: of the event, one of :data:`tnt_notebook.telemetry.events.EVENT_KINDS`; default: none.
        number: of the event, where a collective's has its channel.

    With ``TNT_TRACE=0`` in the environment the op only keeps its place in the graph.
    """
    with tf.device("/CPU:0"):
        if os.environ.get("TNT_TRACE") == "0":
            return tf.identity(tf.cast(begin, tf.int64))
        now: tf.Tensor = library().tnt_clock(
            begin=tf.cast(begin, tf.int64),
            kind=EVENT_KINDS.index(kind) if kind else -1,
            **_address(over, number, kind),
        )
    run_independently(now)
    return now


@functools.cache
def library() -> Any:
    """The op library, loaded and checked once.

    Raises:
        CommunicationError: this TensorFlow does not fit; the message says why.
    """
    path = Path(_kernels.__file__).with_name("libtnt_tensorflow.so")
    loaded = tf.load_op_library(str(path))
    load_error = ctypes.CDLL(str(path)).tnt_load_error
    load_error.restype = ctypes.c_char_p
    problem = load_error().decode()
    if problem:
        raise CommunicationError(f"TensorFlow {tf.__version__} and tnt_notebook: {problem}")
    with tf.init_scope(), tf.device("/CPU:0"):
        if loaded.tnt_check().numpy().tolist() != [1]:
            raise CommunicationError(
                f"TensorFlow {tf.__version__} did not complete an op from another thread"
            )
    return loaded


def address(
    over: Communicator | None, channel: int, label: str, purpose: Purpose = Purpose.OTHER
) -> dict[str, Any]:
    """How an op finds its ranks, and they each other."""
    _note(channel, Exchange(label, purpose))
    return _address(over, channel, label)


@contextlib.contextmanager
def noted(exchanges: dict[int, Exchange]) -> Iterator[None]:
    """Inside, what goes over each channel is added to ``exchanges``."""
    before = getattr(_scope, "noted", None)
    _scope.noted = exchanges
    try:
        yield
    finally:
        _scope.noted = before


def _note(channel: int, exchange: Exchange) -> None:
    exchanges: dict[int, Exchange] | None = getattr(_scope, "noted", None)
    if exchanges is not None:
        exchanges[channel] = exchange


def _address(over: Communicator | None, channel: int, label: str) -> dict[str, Any]:
    number, group = (over or world()).id
    return {"world": number, "group": group, "channel": channel, "label": label}


class Reserved:
    """A channel for an op that is made later, as that of a gradient is: when, must not matter.

    Whoever makes it again, in the same step, gets the next channel that is free then.
    """

    def __init__(self) -> None:
        self._left = [_next_channel()]

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Inside, the first op gets the channel."""
        before = getattr(_scope, "counter", None)
        mine, self._left = self._left, []
        _scope.counter = itertools.chain(mine, before or ())
        try:
            yield
        finally:
            _scope.counter = before


@contextlib.contextmanager
def on_next_channel() -> Iterator[int]:
    """Inside, an op is made on the CPU and after the earlier ones of the channel that it gets."""
    channel = _next_channel()
    with tf.device("/CPU:0"), tf.control_dependencies(_earlier(channel)):
        yield channel


def run_when_ready(made: tf.Tensor | tf.Operation, channel: int) -> None:
    """Of several buckets, more than one may be under way; those of a channel keep their order."""
    graph = getattr(made, "graph", None)  # of eager tensors there is none
    if graph is None:
        return
    op = made if isinstance(made, tf.Operation) else made.op
    graph.add_to_collection(_collection(channel), op)
    run_independently(op)


#: Of kinds of ops, whether they are exchanges: to ask TensorFlow for each op takes long.
_has_channel: dict[str, bool] = {}


def channel_of(op: tf.Operation) -> int | None:
    """The channel of an exchange in a graph; None: it is none."""
    if op.type not in _has_channel:
        attributes = {attribute.name for attribute in op.op_def.attr}
        _has_channel[op.type] = {"world", "group", "channel"} <= attributes
    return op.get_attr("channel") if _has_channel[op.type] else None


def earlier_on(channel: int | None) -> list[tf.Operation]:
    """What an exchange on a channel has to wait for, in the graph that is traced; what is none
    (None) for nothing."""
    return [] if channel is None else _earlier(channel)


def copied(op: tf.Operation, channel: int | None) -> None:
    """An op of the graph that is traced is a copy, of an exchange unless the channel is None: see
    run_when_ready."""
    if channel is not None and is_independent(op):
        run_when_ready(op, channel)


def _earlier(channel: int) -> list[tf.Operation]:
    """The op before, of the same channel in the graph that is traced: a channel carries one at a
    time, and Keras traces a step several times over with ``steps_per_execution``."""
    if tf.executing_eagerly():
        return []
    graph = tf.compat.v1.get_default_graph()
    # A graph inherits the collections of the one that it is nested in.
    return [op for op in graph.get_collection(_collection(channel)) if op.graph is graph][-1:]


def _collection(channel: int) -> str:
    return f"tnt_channel_{channel}"


def _next_channel() -> int:
    counter: Iterator[int] | None = getattr(_scope, "counter", None)
    if counter is None:
        raise RuntimeError("an exchange inside a graph needs `with ops.channels():` around it")
    return next(counter)
