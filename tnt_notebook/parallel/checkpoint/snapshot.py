"""A snapshot: all that is needed to go on, as a value. It lies in memory, or comes from files.

take(...)                      after the same step on all ranks
    -> Snapshot
restore(snapshot, ...)         in this process or another, on as many ranks or others
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import keras
import numpy as np

from tnt_notebook.comm import World
from tnt_notebook.errors import CheckpointError
from tnt_notebook.keras.lazy_variables import is_here
from tnt_notebook.parallel.checkpoint import callback_state
from tnt_notebook.parallel.checkpoint.files import dtype_of
from tnt_notebook.parallel.checkpoint.position import Position
from tnt_notebook.parallel.consistency import agreement, seeds
from tnt_notebook.parallel.consistency.model_state import state_of
from tnt_notebook.parallel.exchange.state import ExchangeState


class Place(NamedTuple):
    """Where in a run.

    Attributes:
        fit: which call of fit of the cell, from 1.
        ended: whether it has ended.
        epoch: that runs, from 0; of one that has ended, how many there were.
        step: batches of this epoch that it has learnt from.
        steps: batches of all calls of fit.
    """

    fit: int
    ended: bool
    epoch: int
    step: int
    steps: int

    @property
    def name(self) -> str:
        """Of a checkpoint there."""
        return f"fit-{self.fit:04d}" if self.ended else f"step-{self.steps:08d}"

    def __str__(self) -> str:
        if self.ended:
            return f"the end of fit {self.fit}"
        return f"epoch {self.epoch + 1}, step {self.step} of fit {self.fit}"


@dataclass(frozen=True)
class State:
    """The part of a snapshot that is small, and the same on all ranks: values for JSON.

    Attributes:
        ranks: how many there were.
        variables, metrics: of each variable, and of those of metrics, its path, shape and dtype.
        logs: of the last step.
        history, epochs: what Keras's History has.
        stopped: whether this fit was ended early, by a request.
        callbacks: see :mod:`.callback_state`; of rank 0's.
        position, random: see :mod:`.position` and :mod:`tnt_notebook.parallel.consistency.seeds`.
        exchange: its name, and the rules of what it has kept.
    """

    place: Place
    ranks: int
    variables: list[list[Any]]
    metrics: list[list[Any]]
    logs: dict[str, float]
    history: dict[str, list[Any]]
    epochs: list[int]
    stopped: bool
    callbacks: list[dict[str, Any]]
    position: dict[str, Any]
    random: dict[str, Any]
    exchange: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "place": list(self.place)}

    @staticmethod
    def of_json(value: dict[str, Any]) -> State:
        return State(**{**value, "place": Place(*value["place"])})


@dataclass(frozen=True)
class Snapshot:
    """The state of a run at one place.

    Attributes:
        arrays: ``variable/3`` (by number in ``state.variables``), ``metric/0``, ``callback/0``, and
            ``exchange/2/name``, what rank 2 has kept. In memory those that this rank has, else all.
    """

    state: State
    arrays: Mapping[str, np.ndarray] = field(repr=False)

    @property
    def place(self) -> Place:
        return self.state.place


def take(
    over: World,
    model: keras.Model,
    place: Place,
    callbacks: Sequence[keras.callbacks.Callback],
    position: Position,
    logs: Mapping[str, Any],
    stopped: bool,
    wanted: Sequence[bool] | None,
    everywhere: bool,
    exchange: tuple[str, ExchangeState],
) -> Snapshot:
    """Copies the state of training into the memory of the host. Collective; variables do not
    travel, what rank 0's callbacks remember does.

    Args:
        wanted: which variables of ``state_of(model)`` this rank is to copy; None: all that it has.
        everywhere: whether all ranks are to have what callbacks remember, and not rank 0 alone.
        exchange: its name, and what it has kept.
    """
    variables, metrics = state_of(model), list(model.metrics_variables)
    arrays = {
        f"variable/{i}": np.asarray(v.value)
        for i, v in enumerate(variables)
        if is_here(v) and (wanted is None or wanted[i])
    }
    arrays |= {f"metric/{i}": np.asarray(m.value) for i, m in enumerate(metrics)}
    remembered, kept = callback_state.encoded(callbacks if over.rank == 0 else ())
    if everywhere and over.size > 1:
        remembered, kept = _from_rank_0(over, remembered, kept)
    arrays |= {f"callback/{i}": array for i, array in enumerate(kept)}
    name, own = exchange
    arrays |= {f"exchange/{over.rank}/{key}": value for key, value in own.values().items()}
    history = getattr(model, "history", None)
    state = State(
        place, over.size, [[v.path, list(map(int, v.shape)), v.dtype] for v in variables],
        [[v.path, list(map(int, v.shape)), v.dtype] for v in metrics],
        {name: float(value) for name, value in logs.items() if np.ndim(value) == 0},
        {k: [*map(_listed, v)] for k, v in history.history.items()} if history else {},
        list(history.epoch) if history else [], stopped, remembered, vars(position), seeds.state(),
        {"name": name, "rules": own.rules},
    )  # fmt: skip
    return Snapshot(state, arrays)


def _listed(value: Any) -> Any:
    """A number of a history, or an array, as JSON has it."""
    return float(value) if np.ndim(value) == 0 else np.asarray(value).tolist()


def restore(
    snapshot: Snapshot,
    over: World,
    model: keras.Model,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    exchange: tuple[str, ExchangeState] | None = None,
    absent: Callable[[keras.Variable, np.ndarray], None] | None = None,
) -> list[str]:
    """Gives a model, its optimizer, metrics and callbacks, and the random generators of this
    process, the state they had. Not the position in the data, see :mod:`.position`.

    ``absent`` gives a variable that is not here its value; None: other ranks have those.

    What callbacks cannot get back is returned, as ``Class.attribute``.

    Raises:
        CheckpointError: the model is another one.
    """
    state, variables, metrics = snapshot.state, state_of(model), list(model.metrics_variables)
    _check_same(state.variables, variables, state.place)
    for i, variable in enumerate(variables):
        if is_here(variable):
            variable.value.assign(snapshot.arrays[f"variable/{i}"])
        elif absent is not None:
            absent(variable, snapshot.arrays[f"variable/{i}"])
    if not state.place.ended:
        _check_same(state.metrics, metrics, state.place)
        for i, metric in enumerate(metrics):
            metric.value.assign(snapshot.arrays[f"metric/{i}"])
    if exchange is not None:
        _restore_exchange(snapshot, over, *exchange)
    _restore_history(model, state)
    left_out: list[str] = []
    if callbacks and over.rank == 0:
        count = sum(name.startswith("callback/") for name in snapshot.arrays)
        kept = [snapshot.arrays[f"callback/{i}"] for i in range(count)]
        left_out = callback_state.decode(callbacks, state.callbacks, kept)
    seeds.set_state(state.random)
    return left_out


def _restore_exchange(snapshot: Snapshot, over: World, name: str, state: ExchangeState) -> None:
    then = snapshot.state.exchange
    rules = then.get("rules", {})
    if not rules:
        return
    if then["name"] != name:
        raise CheckpointError(
            f"The checkpoint of {snapshot.place} is of the exchange {then['name']}, which keeps "
            f"state, and this fit uses {name}. Use that exchange, or start over."
        )
    of_ranks: dict[int, dict[str, np.ndarray]] = {}
    for path in snapshot.arrays:
        if path.startswith("exchange/"):
            _, rank, key = path.split("/", 2)
            of_ranks.setdefault(int(rank), {})[key] = snapshot.arrays[path]
    if len(of_ranks) == snapshot.state.ranks:
        values = [of_ranks[rank] for rank in sorted(of_ranks)]
        state.restore(rules, values, over.rank, over.size)
    else:  # in memory: each rank has its own
        state.restore(rules, [*of_ranks.values()], 0, 1)


def _restore_history(model: keras.Model, state: State) -> None:
    history = getattr(model, "history", None)
    if history is None or state.place.ended:  # that of an earlier fit stays as it is
        history = model.history = keras.callbacks.History()
        history.set_model(model)
    history.history = {
        name: [np.array(v) if isinstance(v, list) else v for v in values]
        for name, values in state.history.items()
    }
    history.epoch = list(state.epochs)


def _check_same(then: list[list[Any]], now: Sequence[keras.Variable], place: Place) -> None:
    """Shapes and dtypes, not names: they count layers per process, and may differ."""
    layout = [row[1:] for row in then]
    if layout == agreement.layout(now):
        return
    if len(then) != len(now):
        what = f"it had {len(then)} variables, and has {len(now)}"
    else:
        own = agreement.layout(now)
        i = next(i for i, pair in enumerate(zip(layout, own, strict=True)) if pair[0] != pair[1])
        what = f"{then[i][0]} was {layout[i]}, and {now[i].path} is {own[i]}"
    raise CheckpointError(
        f"The checkpoint of {place} is of another model: {what}. Rerun the original cell, or name "
        "another folder for this one."
    )


def _from_rank_0(
    over: World, remembered: list[dict[str, Any]], kept: list[np.ndarray]
) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
    told = [[array.dtype.name, array.shape] for array in kept]
    remembered, told = agreement.from_rank_0(over, [remembered, told])
    if over.rank != 0:
        kept = [np.empty(shape, dtype_of(dtype)) for dtype, shape in told]
    arrays = [over.broadcast_bytes(array.tobytes()) for array in kept]
    return remembered, [
        np.frombuffer(content, array.dtype).reshape(array.shape)
        for content, array in zip(arrays, kept, strict=True)
    ]
