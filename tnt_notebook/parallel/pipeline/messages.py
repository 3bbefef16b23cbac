"""What goes from stage to stage in a step: values there, and their gradients back.

A value whose shape both ends know is one message. Of any other the shape goes first; its gradient
has the same. Room for a message is made one action before it is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import tensorflow as tf

from tnt_notebook.comm import channels, ops
from tnt_notebook.parallel.layer_graph.graph import Graph
from tnt_notebook.parallel.pipeline.place import Place, Plan
from tnt_notebook.plan.partition import Edge
from tnt_notebook.plan.schedule import Action

#: Messages of an edge under way at a time; each holds memory of the backend.
_IN_FLIGHT = 2


class Message(NamedTuple):
    """A value on its way along an edge, which has a number in the cut, or (not ``forward``) its
    gradient on the way back."""

    number: int
    edge: Edge
    micro: int
    forward: bool

    @property
    def sender(self) -> int:
        """The stage that sends it."""
        return self.edge.maker if self.forward else self.edge.user

    @property
    def receiver(self) -> int:
        """The stage that takes it."""
        return self.edge.user if self.forward else self.edge.maker


class Messages:
    """The messages of a step on this rank, while its graph is built; ``rows``: samples of each
    micro-batch."""

    def __init__(
        self, plan: Plan, place: Place, graph: Graph, trained: Collection[int], rows: Sequence[Any]
    ) -> None:
        self._plan, self._place = plan, place
        self._graph, self._trained, self._rows = graph, trained, rows
        self._posted: dict[Message, ops.Posted] = {}
        self._shapes: dict[tuple[int, int], tf.Tensor] = {}  # of values sent, by edge and micro
        self._in_turns = {
            (number, forward): self._come_in_order(edge, forward)
            for number, edge in enumerate(plan.cut.edges)
            for forward in (True, False)
        }

    def to(self, stage: int, micro: int, forward: bool) -> list[Message]:
        """What a stage takes before it acts, also from stages of this rank."""
        return [m for m in self._all(micro, forward) if m.receiver == stage]

    def of(self, stage: int, micro: int, forward: bool) -> list[Message]:
        """What other stages take of it when it has acted, also those of this rank."""
        return [m for m in self._all(micro, forward) if m.sender == stage]

    def stays(self, message: Message) -> bool:
        """Whether both stages are on this rank."""
        rank_of = self._plan.schedule.rank_of
        return rank_of[message.sender] == rank_of[message.receiver]

    def post(self, action: Action, after: Sequence[Any]) -> list[Any]:
        """Makes room, after all of ``after``, for what an action takes from other ranks; gives what
        has to happen before the next action."""
        before = list(after)
        if action.kind == "W":
            return before
        with tf.control_dependencies(after):
            for message in self.to(action.stage, action.micro, action.kind == "F"):
                if not self.stays(message):
                    before.append(self._post(message))
        return before

    def send(self, message: Message, tensor: tf.Tensor) -> list[tf.Operation]:
        """Sends a value, after its shape where the other rank does not know it, or a gradient."""
        sent = []
        if message.forward and self._shape_of(message) is None:
            shape = tf.shape(tensor, tf.int64)
            sent.append(self._send(message, shape))
            self._shapes[message.number, message.micro] = shape
        return [*sent, self._send(message, tensor)]

    def take(self, message: Message) -> tf.Tensor:
        """Waits for what has been posted."""
        taken = ops.take(self._posted.pop(message))
        taken.set_shape(self._graph.spec(message.edge.value).shape)
        return taken

    def _all(self, micro: int, forward: bool) -> list[Message]:
        return [
            Message(number, edge, micro, forward)
            for number, edge in enumerate(self._plan.cut.edges)
            if forward or edge.value in self._trained
        ]

    def _post(self, message: Message) -> tf.Operation:
        """Makes room for one; gives what has to happen before the next action."""
        shape = self._shape_of(message)
        if shape is None and not message.forward:
            shape = self._shapes.pop((message.number, message.micro))
        first = None
        if shape is None:
            # It comes first. As soon as it is here there is room for what follows.
            axes = len(self._graph.shapes[message.edge.value])
            first = self._post_one(message, [axes], tf.int64)
            shape = ops.take(first)
        posted = self._post_one(message, shape, self._graph.specs[message.edge.value].dtype)
        self._posted[message] = posted
        return (first or posted).ticket.op

    def _post_one(self, message: Message, shape: Any, dtype: Any) -> ops.Posted:
        peer = self._rank_of(message.sender)
        with self._channel(message):
            return ops.post(shape, dtype, peer, self._label(message), self._place.over)

    def _send(self, message: Message, tensor: tf.Tensor) -> tf.Operation:
        peer = self._rank_of(message.receiver)
        with self._channel(message):
            return ops.send(tensor, peer, self._label(message), self._place.over)

    def _shape_of(self, message: Message) -> list[Any] | None:
        """Of a value, where both ends know it without a message."""
        return self._graph.shape(message.edge.value, self._rows[message.micro])

    def _channel(self, message: Message) -> AbstractContextManager[None]:
        number, _, micro, forward = message
        turn = micro % _IN_FLIGHT if self._in_turns[number, forward] else micro
        first = (2 * number + forward) * self._plan.schedule.micro_batches
        return ops.channels(channels.EDGES.only(first + turn))

    def _come_in_order(self, edge: Edge, forward: bool) -> bool:
        """Whether both ends of an edge go through the micro-batches in the same order."""
        schedule, kinds = self._plan.schedule, "F" if forward else "BI"
        maker, user = (
            [
                action.micro
                for action in schedule.actions[schedule.rank_of[stage]]
                if action.stage == stage and action.kind in kinds
            ]
            for stage in (edge.maker, edge.user)
        )
        return maker == user

    def _rank_of(self, stage: int) -> int:
        return self._place.ranks[self._plan.schedule.rank_of[stage]]

    def _label(self, message: Message) -> str:
        what = "" if message.forward else "the gradient of "
        value = self._graph.specs[message.edge.value].name
        return f"{what}{value} of micro-batch {message.micro}"
