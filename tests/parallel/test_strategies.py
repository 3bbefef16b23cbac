"""Exchanges with a state: as their references in NumPy, the same on all numbers of ranks, kept."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from keras import layers

import tnt_notebook as tnt
from tests.parallel import exchange_references, interrupted
from tests.parallel.interrupted import Result, assert_close, assert_equal
from tests.parallel.models import chain, classification, mlp
from tests.parallel.outcome import close
from tests.support.cases import THOROUGH
from tests.support.waiting import eventually
from tnt_notebook.choices import EXCHANGES
from tnt_notebook.comm import ops
from tnt_notebook.errors import CheckpointError, ModelError
from tnt_notebook.keras.lazy_variables import is_here
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.parallel.exchange.gossip import partner_of, rounds
from tnt_notebook.parallel.exchange.named import CLASSES, exchange_of, name_of
from tnt_notebook.parallel.step import sync_interval
from tnt_notebook.telemetry.events import EVENT_KINDS, sent_bytes

RATE, BATCH, EPOCHS = 0.1, 16, 3


def data() -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(3)
    x = chance.normal(size=(50, 24)).astype("float32")  # the last batch has 2 samples
    return x, (x @ chance.normal(size=(24, 12)) + 0.1).astype("float32")


class Steps(keras.callbacks.Callback):
    """Remembers the weights after every step, and after every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[np.ndarray] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.weights.append(self.model.get_weights()[0])

    on_epoch_end = on_train_batch_end


def steps_of(exchange: Any, mesh: tnt.Mesh | None = None) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    model = chain(
        keras.Input((24,)), layers.Dense(12, use_bias=False), loss="mse", metrics=None,
        optimizer=keras.optimizers.SGD(RATE),
    )  # fmt: skip
    start, steps = model.get_weights()[0], Steps()
    wrapped = tnt.Model(model, exchange=exchange, mesh=mesh)
    wrapped.fit(
        *data(), batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[steps]
    )
    return [start, *steps.weights]


def reference(text: str, start: np.ndarray, workers: int) -> list[np.ndarray]:
    exchange = exchange_of(text)
    options = {k: v for k, v in vars(exchange).items() if k in OPTIONS}
    x, y = data()
    epoch = [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(x), BATCH)]
    strategy = getattr(exchange_references, text.partition(":")[0])
    return list(strategy(start, [epoch] * EPOCHS, RATE, workers, **options))


#: What changes the result.
OPTIONS = ("steps", "warmup", "ratio", "rank", "bits", "every", "from_step", "beta", "staleness")
CASES = [
    ("late", 2), ("late:steps=2,warmup=3", 3), ("topk:ratio=0.05", 3), ("powersgd:rank=1", 2),
    ("local:every=3,from_step=2", 3), ("elastic:every=2,beta=0.6", 2), ("gossip", 3),
    ("qsgd:bits=2", 2), ("onebit", 2), ("server:staleness=0", 3), ("server:staleness=1", 4),
    *[
        ("late:steps=3", 1), ("topk:ratio=0.5", 2), ("gossip", 4), ("qsgd:bits=8", 3),
        ("server:staleness=1", 2),
    ] * THOROUGH,
]  # fmt: skip


@pytest.mark.parametrize(("text", "n"), CASES)
def test_each_step_is_that_of_the_reference(ranks, text, n):
    start, *steps = ranks.run(n, steps_of, text)[0]
    for ours, theirs in zip(steps, reference(text, start, n), strict=True):
        close(ours, theirs, 1e-4, 1e-5)


ON_MESHES = ["local:every=3,from_step=2", "late:steps=2", "server:staleness=1", "gossip", "elastic"]


@pytest.mark.parametrize("text", ON_MESHES[: None if THOROUGH else 2])
def test_replicas_of_a_mesh_do_what_ranks_do(ranks, text):
    start, *steps = ranks.run(4, steps_of, text, tnt.Mesh(model=2))[0]
    for ours, theirs in zip(steps, reference(text, start, 2), strict=True):
        close(ours, theirs, 1e-4, 1e-5)


@given(st.integers(1, 40))
def test_partners_are_each_others_and_what_one_knows_comes_to_all(size):
    mean = np.eye(size)
    for round_ in range(rounds(size)):
        partners = [partner_of(rank, size, round_) for rank in range(size)]
        assert [partners[partner] for partner in partners] == list(range(size))
        mean = (mean + mean[partners]) / 2
    assert (mean > 0).all()


def sent(exchange: str) -> float:
    """Bytes that this rank sends in a step beside the mean of an epoch's end, as the trace says."""
    begin = time.monotonic_ns()
    x, y = data()
    model = chain(
        keras.Input((24,)), layers.Dense(12, use_bias=False), loss="mse", metrics=None,
        optimizer="sgd",
    )  # fmt: skip
    tnt.Model(model, exchange=exchange).fit(x, y, batch_size=BATCH, verbose=0)
    trace = tnt.world().trace()
    messages = trace["kind"] == EVENT_KINDS.index("send")
    return float(trace["bytes"][messages & (trace["begin_ns"] > begin)].sum()) / -(-len(x) // BATCH)


def test_a_rank_sends_its_weights_to_a_partner_in_each_step(ranks):
    assert ranks.run(4, sent, "gossip") == [4 * 24 * 12] * 4
    assert sorted(ranks.run(3, sent, "gossip")) == pytest.approx(
        sorted([1152 * share for share in (0.5, 0.75, 0.75)])  # a row of four steps for three
    )


ELEMENTS = 24 * 12
#: What an allgather sends beside its elements: how many they are.
COUNT = 8
#: Bytes that a rank of two sends of a gradient of so many elements.
WIRE = {
    "allreduce": 4 * ELEMENTS,
    "qsgd:bits=4": ELEMENTS // 2 + 4 + COUNT, "onebit": ELEMENTS // 8 + 8 + COUNT,
    "topk:ratio=0.05": math.ceil(0.05 * ELEMENTS) * (4 + 4) + 2 * COUNT,
    "powersgd:rank=2": 2 * 4 * (24 + 12),
}  # fmt: skip


def sent_in_a_step() -> list[float]:
    """Bytes that this rank sends, with each exchange."""
    sizes = []
    for exchange in WIRE:
        begin = time.monotonic_ns()
        steps_of(exchange)
        trace = tnt.world().trace()
        steps = trace[(trace["kind"] == EVENT_KINDS.index("step")) & (trace["begin_ns"] > begin)]
        inside = [
            (trace["begin_ns"] > s["begin_ns"]) & (trace["end_ns"] < s["end_ns"]) for s in steps
        ]
        sizes.append(sent_bytes(trace[np.any(inside, axis=0)]) / len(steps))
    return sizes


def test_what_travels_is_as_much_as_the_formula_says(ranks):
    whole, *others = WIRE.values()
    for of_all, *sent in ranks.run(2, sent_in_a_step, world={"transport": "mpi"}):
        # Metrics are exchanged, too, the same with all of them.
        assert [of_all - one for one in sent] == [whole - one for one in others]


class Slow(keras.callbacks.Callback):
    """Steps take so long that ranks are looked at several times."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.06)


def said_of_what_is_sent() -> tuple[int, str]:
    """How often ranks were looked at in 32 steps, and what the view says at the end."""
    model = chain(keras.Input((100,)), layers.Dense(500), loss="mse", optimizer="sgd")
    x, y, frames = np.ones((64, 100), "float32"), np.ones((64, 500), "float32"), []
    with tnt.distributed(exchange="local:every=12", report=frames.append):
        model.fit(x, y, batch_size=8, epochs=4, verbose=0, callbacks=[Slow()])
    looks = sum("step_trace" in frame for frame in frames)
    return looks, frames[-1]["exchange"] if frames else ""


def test_the_view_says_what_is_sent_in_a_step_of_the_whole_run(ranks):
    looks, said = ranks.run(2, said_of_what_is_sent, world={"transport": "mpi"})[0]
    assert looks > 2
    told = re.search(r"each rank sends (\S+) KB a step, and \S+ KB by allreduce", said)
    assert told is not None, said
    # After 12 and 24 steps, and at the end of 4 epochs, all of 500 * (100 + 1) weights.
    assert 1024 * float(told[1]) == pytest.approx(6 * 4 * 50_500 / 32, rel=0.1)


def test_the_view_says_that_nothing_is_sent_where_ranks_read_each_others_memory(ranks):
    _, said = ranks.run(2, said_of_what_is_sent)[0]
    assert said.endswith("; ranks share memory, so nothing has to be sent")


def of_two_dtypes() -> keras.Model:
    parts = [keras.Input((8,)), layers.Dense(12, "tanh", dtype="float64")]
    return chain(*parts, layers.Dense(3, "softmax"), optimizer="sgd")


def random_partners() -> list[np.ndarray]:
    return trained(of_two_dtypes, "gossip:partner=random")


def test_partners_drawn_by_chance_are_the_same_everywhere(ranks):
    first, *others = ranks.run(3, random_partners)
    for weights in others:
        close(weights, first, 0, 0)


STALENESS, STANDS_STILL = 3, 10


class Standing(keras.Sequential):
    """On rank 0 a step stands still until the others are as far ahead as they may be."""

    folder: Path

    def train_step(self, batch: Any) -> Any:
        number = tf.py_function(self._wait, [self.optimizer.iterations], tf.int64)
        with tf.control_dependencies([number]):
            return super().train_step(batch)

    def _wait(self, before: tf.Tensor) -> tf.Tensor:
        step = int(before)
        if tnt.comm.rank() != 0:
            (self.folder / f"{tnt.comm.rank()}").write_text(str(step))
        elif step == STANDS_STILL:
            eventually(lambda: self._others() == [STANDS_STILL + STALENESS] * 2)
            time.sleep(0.05)  # none may go on
            assert self._others() == [STANDS_STILL + STALENESS] * 2
        return before

    def _others(self) -> list[int]:
        return [int((self.folder / str(rank)).read_text() or -1) for rank in (1, 2)]


def standing(folder: str) -> tuple[list[np.ndarray], str]:
    keras.utils.set_random_seed(1)
    model = Standing([keras.Input((24,)), layers.Dense(12)])
    model.folder = Path(folder)
    model.compile(keras.optimizers.SGD(RATE), "mse")
    x, y = data()
    frames: list[Any] = []
    # However long the first steps take: where ranks met between, none could be ahead.
    rarely = mock.patch.object(sync_interval, "_MOST_APART_NS", 1 << 60)
    shared = tnt.distributed(exchange=f"server:staleness={STALENESS}", report=frames.append)
    with rarely, shared:
        model.fit(x, y, batch_size=3, epochs=2, verbose=0)
    return model.get_weights(), frames[-1].get("exchange", "") if frames else ""


def test_a_rank_that_stands_still_holds_the_others_up_at_the_bound_only(ranks, tmp_path):
    (first, said), *others = ranks.run(3, standing, str(tmp_path))
    for weights, _ in others:
        close(weights, first, 0, 0)
    lacked = rf"weights lacked \d\.\d steps of the slowest rank, [1-{STALENESS}] at most"
    assert re.search(rf"% apart at the end of the last epoch; {lacked}$", said)


def embedding() -> keras.Model:
    """Its gradient is of some rows."""
    parts = [keras.Input((4,), dtype="int32"), layers.Embedding(30, 5), layers.Flatten()]
    return chain(*parts, layers.Dense(3, "softmax"), optimizer=keras.optimizers.Adam(0.05))


def averaged() -> keras.Model:
    optimizer = keras.optimizers.AdamW(0.02, use_ema=True, ema_momentum=0.8, global_clipnorm=0.5)
    model = mlp(optimizer)
    model.compile(optimizer, "sparse_categorical_crossentropy", steps_per_execution=3)
    return model


def scaled() -> keras.Model:
    return mlp(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))


def trained(
    make: Any, exchange: Any, stages: int = 0, mesh: tnt.Mesh | None = None
) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    model = make()
    x, y = classification()
    if make is embedding:
        x = np.random.default_rng(1).integers(0, 30, (len(y), 4))
    pipeline = tnt.Pipeline(stages, micro_batches=2) if stages else None
    wrapped = tnt.Model(model, exchange=exchange, pipeline=pipeline, mesh=mesh)
    wrapped.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, validation_split=0.2)
    return model.get_weights()


@pytest.mark.parametrize(
    ("make", "n", "stages"), [(embedding, 2, 0), (averaged, 3, 0), (embedding, 4, 2)]
)
def test_late_is_the_same_on_any_number_of_ranks(ranks, make, n, stages):
    (alone,) = ranks.run(1, trained, make, "late:steps=2")
    for weights in ranks.run(n, trained, make, "late:steps=2", stages):
        close(weights, alone, 2e-5, 2e-6)


@pytest.mark.parametrize(
    ("make", "n", "stages", "mesh"),
    [
        (embedding, 2, 0, None), (averaged, 3, 0, None), (scaled, 2, 0, None),
        (averaged, 4, 0, tnt.Mesh(model=2)), (averaged, 4, 2, None),
        *[(embedding, 4, 2, None), (scaled, 4, 2, None), (scaled, 4, 0, tnt.Mesh(model=2))]
        * THOROUGH,
    ],
)  # fmt: skip
def test_sharded_is_the_same_as_one_process(ranks, make, n, stages, mesh):
    (alone,) = ranks.run(1, trained, make, None)
    for weights in ranks.run(n, trained, make, "sharded:small_kb=0", stages, mesh):
        close(weights, alone, 2e-5, 2e-6)


class Counted(keras.optimizers.schedules.LearningRateSchedule):
    """Of a step, it is asked for once in each trace."""

    def __init__(self) -> None:
        self.traces = 0

    def __call__(self, step: Any) -> float:
        self.traces += not tf.executing_eagerly()
        return 0.1


def traces(exchange: str, stages: int) -> int:
    rate = Counted()
    trained(lambda: mlp(keras.optimizers.SGD(rate)), exchange, stages)
    return rate.traces


@pytest.mark.parametrize(("exchange", "stages"), [("late", 0), ("allreduce", 2)])
def test_a_step_is_traced_once_whatever_is_kept_beside_it(ranks, exchange, stages):
    assert ranks.run(2, traces, exchange, stages) == [1, 1]


def on_batches(exchange: str) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    model, (x, y) = plain_sgd(), classification()
    wrapped = tnt.Model(model, exchange=exchange)
    for begin in (0, 10, 20):
        wrapped.train_on_batch(x[begin : begin + 10], y[begin : begin + 10])
    return model.get_weights()


def compiled_twice(exchange: str) -> tuple[int, int, list[np.ndarray]]:
    """Steps of an optimizer before and after a fit with another one, and the weights then."""
    keras.utils.set_random_seed(1)
    model, (x, y) = mlp(), classification()
    ours = tnt.Model(model, exchange=exchange)
    first = model.optimizer
    ours.fit(x, y, batch_size=16, verbose=0)
    before = int(first.iterations)
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    ours.fit(x, y, batch_size=16, epochs=2, verbose=0)
    return before, int(first.iterations), model.get_weights()


@pytest.mark.parametrize(
    "exchange",
    ["late", "local:every=3", "elastic", "gossip", *["sharded", "onebit", "topk"] * THOROUGH],
)
def test_an_optimizer_rests_when_another_was_compiled(ranks, exchange):
    (before, after, first), (_, _, second) = ranks.run(2, compiled_twice, exchange)
    assert before == after
    if exchange == "late":  # the others give ranks the same at the end of an epoch, or never
        close(second, first)


def test_after_train_on_batch_nothing_waits_and_all_ranks_have_the_same(ranks):
    (alone,) = ranks.run(1, on_batches, "allreduce")
    for weights in ranks.run(2, on_batches, "late"):
        close(weights, alone, 2e-5, 2e-6)
    first, second = ranks.run(2, on_batches, "local:every=100")
    close(first, second, 0, 0)


def kept_here() -> tuple[int, int]:
    """Elements that the optimizer keeps on this rank after training, and all of them."""
    with tnt.lazy():
        model = mlp(keras.optimizers.Adam())
    tnt.Model(model, exchange="sharded:small_kb=0").fit(*classification(), verbose=0)
    variables = model.optimizer.variables
    return tuple(
        sum(int(np.prod(v.shape)) for v in some)
        for some in ([v for v in variables if is_here(v)], variables)
    )


def test_ranks_divide_what_the_optimizer_keeps(ranks):
    kept = ranks.run(2, kept_here)
    whole = kept[0][1]
    assert max(here for here, _ in kept) < 0.8 * whole  # its largest weight is more than half
    assert whole <= sum(here for here, _ in kept) < 1.1 * whole  # what is small they share


def cell(folder: str | None, at: int | None, exchange: str) -> Result | str:
    return interrupted.run(interrupted.plain, folder, at, exchange=exchange)


def broken_off(ranks, tmp_path: Path, exchange: str) -> dict[int, str]:
    """Checkpoints of a run on two ranks, once for the two that go on with it, once for three."""
    folders = {then: str(tmp_path / str(then)) for then in (2, 3)}
    assert ranks.run(2, cell, folders[2], 7, exchange) == ["broken off"] * 2
    shutil.copytree(folders[2], folders[3])
    return folders


@pytest.mark.parametrize("exchange", ["late:steps=2", "sharded:small_kb=0"])
def test_what_is_kept_is_saved_and_goes_on(ranks, tmp_path, exchange):
    (whole, _) = ranks.run(2, cell, None, None, exchange)
    folders = broken_off(ranks, tmp_path, exchange)
    for then, check in ((2, assert_equal), (3, assert_close)):
        for ours in ranks.run(then, cell, folders[then], None, exchange):
            # Where logs are late, what has met at other steps is summed in another order.
            close(ours.histories, whole.histories, 1e-6)
            check(dataclasses.replace(ours, histories=whole.histories), whole)


@pytest.mark.parametrize("exchange", ["powersgd:rank=1", "local:every=3", "server"])
def test_what_each_rank_keeps_of_its_own_is_saved_too(ranks, tmp_path, exchange):
    (whole, _) = ranks.run(2, cell, None, None, exchange)
    folders = broken_off(ranks, tmp_path, exchange)
    for then in (2, 3):
        came = ranks.run(then, cell, folders[then], None, exchange)
        if then == 2 and "powersgd" in exchange:  # for a checkpoint its ranks meet
            assert_equal(came[0], whole)
        assert came[0].histories[0]["loss"][-1] == pytest.approx(
            whole.histories[0]["loss"][-1], rel=0.3
        )


def test_in_a_pipeline_replicas_of_a_stage_have_their_own(ranks):
    (start,) = ranks.run(1, trained, plain_sgd, None)
    several = ranks.run(4, trained, plain_sgd, "powersgd:rank=1", 2)
    assert all(np.isfinite(w).all() for w in several[0])
    for own, other in zip(several[0], start, strict=True):
        close(own, other, 0.5, 0.2)
    for weights in several[1:]:
        close(weights, several[0], 0, 0)


def other_exchange(folder: str) -> str:
    with pytest.raises(CheckpointError) as raised:
        cell(folder, None, "allreduce")
    tnt.world().recover()
    return str(raised.value)


def test_a_checkpoint_of_another_exchange_is_refused(ranks, tmp_path):
    assert ranks.run(2, cell, str(tmp_path), 3, "late") == ["broken off"] * 2
    for said in ranks.run(2, other_exchange, str(tmp_path)):
        assert "is of the exchange late" in said and "this fit uses allreduce" in said


@dataclass(frozen=True)
class Smoothed(Exchange):
    """What a researcher would write."""

    beta: float = 0.5

    def gradients(self, step, gradients, variables):
        means = ops.allreduce(
            [tf.convert_to_tensor(g) for g in gradients], step.scale, over=step.over
        )
        smooth = [step.keep("smooth", of=v) for v in variables]
        return [s.assign(self.beta * s + g) for s, g in zip(smooth, means, strict=True)]


def test_one_of_ones_own_with_a_state(ranks):
    """It is momentum, which Keras has too."""
    ours = ranks.run(2, trained, plain_sgd, Smoothed(0.9))
    theirs = ranks.run(2, trained, with_momentum, None)
    for own, other in zip(ours, theirs, strict=True):
        close(own, other, 2e-5, 2e-6)


def plain_sgd() -> keras.Model:
    return mlp(keras.optimizers.SGD(0.1))


def with_momentum() -> keras.Model:
    return mlp(keras.optimizers.SGD(0.1, momentum=0.9))


class Clipping(keras.Sequential):
    """Changes its gradients by itself."""

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def clipping() -> keras.Model:
    model = Clipping([keras.Input((8,)), layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


class Contradictory(Exchange):
    """Weights have an owner, and are other ones on each rank."""

    has_owners, keeps_ranks_equal = True, False


def refused(make: Any, exchange: Any, stages: int) -> str:
    with pytest.raises(ModelError) as raised:
        trained(make, exchange, stages)
    tnt.world().recover()
    return str(raised.value)


@pytest.mark.parametrize(
    ("make", "exchange", "stages", "words"),
    [
        (scaled, "late", 0, "compute in mixed_bfloat16"),
        (plain_sgd, "local", 2, "needs ranks that have all layers"),
        (plain_sgd, Contradictory(), 0, "it can do one of these"),
    ],
)
def test_what_an_exchange_cannot_do_is_refused(ranks, make, exchange, stages, words):
    for said in ranks.run(2, refused, make, exchange, stages):
        assert words in said


def test_a_step_that_clips_by_itself_has_owners_of_weights(ranks):
    (alone,) = ranks.run(1, trained, clipping, None)
    for ours in ranks.run(2, trained, clipping, "sharded:small_kb=0"):
        close(ours, alone)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "lat",
            "There is no exchange 'lat': did you mean late? It is one of allreduce, shar",
        ),
        ("topk:ratio=0", "ratio is above 0 and at most 1"),
        ("powersgd:rank=0", "rank must be at least 1"),
        (
            "late:step=1",
            "has no option 'step=1'. It takes steps=..., warmup=..., wire=..., bucket_mb=...",
        ),
        ("qsgd:bits=3", "bits is 2, 4 or 8, not 3"),
        ("gossip:partner=next", "partner is one of rotating, random, not 'next'"),
        ("late:steps=x", "'x' is no int"),
        ("late:steps=0", "steps of at least 1"),
        ("allreduce:wire=int8", "wire is one of float32, bfloat16, float16, not 'int8'"),
        ("allreduce:bucket_mb=0", "bucket_mb must be positive"),
    ],
)
def test_what_is_no_exchange_says_so(text, said):
    with pytest.raises(ValueError, match="^.*") as raised:
        exchange_of(text)
    assert said in str(raised.value)


def test_names():
    assert CLASSES.keys() == EXCHANGES.keys()
    for name, kind in CLASSES.items():
        assert list(EXCHANGES[name][1]) == [field.name for field in fields(kind)]
        assert kind.source and kind.__doc__
    for text in ("allreduce", "late", "late:steps=2,warmup=5", "allreduce:wire=bfloat16"):
        assert name_of(exchange_of(text)) == text
    assert exchange_of("Smoothed:beta=0.25", own={"Smoothed": Smoothed}.get) == Smoothed(0.25)
    assert name_of(Smoothed(0.25)) == "Smoothed:beta=0.25"
