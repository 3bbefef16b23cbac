"""What lies on which rank while stages train, and what a model costs that was built lazily."""

import contextlib
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from tests.comm import job
from tests.parallel.outcome import close, same_bits
from tests.pipeline.models import mlp, numbers
from tests.pipeline.test_values import with_few_weights
from tests.support.cases import THOROUGH
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.lazy_variables import is_here
from tnt_notebook.parallel.layer_graph.parts import Part
from tnt_notebook.parallel.pipeline.stage import StageFunctions
from tnt_notebook.plan.schedule import Action


def compiled() -> keras.Model:
    keras.utils.set_random_seed(3)
    model = mlp()
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def pipeline(stages: int) -> tnt.Pipeline:
    return tnt.Pipeline(stages, 2)


def fit(model, epochs=2, **more):
    model.fit(
        numbers(20, 8), numbers(20, 3, seed=1), 10, epochs=epochs, verbose=0, shuffle=False, **more
    )


def present(model) -> list[bool]:
    return [is_here(v) for v in [*model.variables, *model.optimizer.variables]]


def what_lies_here_in_a_fit():
    """While it trains, seen by a callback of batches: on rank 0, and told from the others."""
    model = compiled()
    trained = tnt.Model(model, pipeline=pipeline(2))
    within = []
    functions = trained._session.functions_of

    def watched(model, *more):
        made = functions(model, *more)
        train = model.train_function

        def step(iterator):
            logs = train(iterator)
            within.append(present(model))
            return logs

        model.train_function = step
        made._ours["train_function"] = step
        return made

    trained._session.functions_of = watched
    fit(trained)
    assert all(seen == within[0] for seen in within) and len(within) == 4
    return within[0], present(model), [np.asarray(v) for v in model.get_weights()]


@pytest.mark.core
def test_each_rank_has_what_it_trains_and_afterwards_all_have_all(ranks):
    (first, *afterwards), (second, *also) = ranks.run(2, what_lies_here_in_a_fit)
    # Both have what belongs to no stage: the optimizer's count of steps, and its learning rate.
    assert sum(a and b for a, b in zip(first, second, strict=True)) == 2
    assert all(a or b for a, b in zip(first, second, strict=True))
    assert all(afterwards[0]) and all(also[0])
    same_bits(afterwards[1], also[1])


def lazily(file):
    """A model that is never whole, but in its file."""
    with tnt.lazy():
        model = compiled()
    assert not any(map(is_here, model.variables))
    trained = tnt.Model(model, pipeline=pipeline(3))
    fit(trained)
    here = [is_here(v) for v in model.variables]
    own_slots = [is_here(v) for v in model.optimizer.variables]
    assert not all(here) and any(here) and not all(own_slots)
    with pytest.raises(ModelError, match=r"is on rank \d: of a model"):
        model.get_weights()
    trained.save(file)
    assert [is_here(v) for v in model.variables] == here
    return trained.predict(numbers(20, 8), verbose=0)


def in_one_process(epochs):
    model = compiled()
    fit(model, epochs)
    return state_of(model), model.predict(numbers(20, 8), verbose=0)


def from_file(file):
    return state_of(keras.models.load_model(file))


def state_of(model):
    return model.get_weights(), [np.asarray(v) for v in model.optimizer.variables]


@pytest.fixture(scope="module")
def saved(ranks, tmp_path_factory):
    """The file of a lazy model that three ranks have trained, and what they predict then."""
    file = tmp_path_factory.mktemp("lazy") / "model.keras"
    return file, ranks.run(3, lazily, file)


@pytest.mark.core
def test_a_lazy_model_is_trained_and_saved_without_ever_being_whole(ranks, saved):
    file, predictions = saved
    ((state, expected),) = ranks.run(1, in_one_process, 2)
    for predicted in predictions:
        close(predicted, expected, 2e-4, 2e-5)
    (ours,) = ranks.run(1, from_file, file)
    close(ours, state)


def compiled_again(folder, lazily):
    """Between two fits; ranks 0 and 2 of 4 have no weights."""
    keras.utils.set_random_seed(3)
    with tnt.lazy() if lazily else contextlib.nullcontext():
        model = trained = with_few_weights()
    model.compile("adam", "mse")
    if lazily:
        stages = tnt.Pipeline(4, 2, cut_at=["first", "middle", "last"])
        trained = tnt.Model(model, pipeline=stages)
    fit(trained)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mae")
    fit(trained)
    file = folder / f"lazily {lazily}.keras"
    trained.save(file)
    return file


def test_lazy_stages_without_weights_and_another_optimizer(ranks, tmp_path):
    file, *_ = ranks.run(4, compiled_again, tmp_path, True)
    (expected,) = ranks.run(1, compiled_again, tmp_path, False)
    ours, theirs = (ranks.run(1, from_file, of) for of in (file, expected))
    close(ours, theirs)


def resumed(file, folder, cut_again):
    """Goes on from a file with 2 stages, and then with one, or evaluates without a pipeline."""
    with tnt.lazy():
        model = keras.models.load_model(file)
    trained = tnt.Model(model, pipeline=pipeline(2))
    fit(trained, 1)
    if cut_again:
        trained = tnt.Model(model, pipeline=pipeline(1))
    fit(trained, 1)
    trained.save(folder / "resumed.keras")
    if not cut_again:
        evaluated = tnt.Model(model).evaluate(numbers(20, 8), numbers(20, 3, seed=1), verbose=0)
        assert all(map(is_here, model.variables)) and np.isfinite(evaluated).all()


@pytest.mark.parametrize("cut_again", [True, False])
def test_training_goes_on_with_another_number_of_stages(ranks, saved, tmp_path, cut_again):
    ranks.run(2, resumed, saved[0], tmp_path, cut_again)
    ((state, _),) = ranks.run(1, in_one_process, 4)
    (ours,) = ranks.run(1, from_file, tmp_path / "resumed.keras")
    close(ours, state)


#: Trains 12 layers with 8 MB of weights each; with Adam's two slots and gradients that is 400 MB.
BIG = """
import resource, sys

import keras

import tnt_notebook as tnt

base, limit_mb, n = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, int(sys.argv[1]), 12
if limit_mb:
    resource.setrlimit(resource.RLIMIT_DATA, (limit_mb << 20, limit_mb << 20))
keras.utils.set_random_seed(3)
with tnt.lazy():
    model = keras.Sequential([keras.Input((1448,)), *(keras.layers.Dense(1448) for _ in range(n))])
model.compile("adam", "mse", jit_compile=False)
x = keras.random.normal((16, 1448), seed=1)
ranks = tnt.world().size
trained = tnt.Model(model, pipeline=tnt.Pipeline(ranks, 4, cut_at=[
    layer.name for layer in model.layers[n // ranks :: n // ranks]]))
history = trained.fit(x, x, batch_size=16, epochs=3, verbose=0)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base
if tnt.world().rank == 0:
    print(f"peak {peak / 1024:.0f} losses", *history.history["loss"], flush=True)
"""


#: Of memory that a process may write to: TensorFlow itself takes about 500.
LIMIT_MB = 850


def told(output: str) -> tuple[float, list[float]]:
    """The most memory that training took on rank 0, in MB, and the losses."""
    words = next(line for line in output.splitlines() if line.startswith("peak")).split()
    return float(words[1]), [float(word) for word in words[3:]]


def test_what_does_not_fit_one_rank_trains_on_four(tmp_path):
    train = functools.partial(job.run, tmp_path, TF_NUM_INTEROP_THREADS="1")
    status, alone = train(1, BIG, 0)
    assert status == 0, alone
    status, together = train(4, BIG, LIMIT_MB)
    assert status == 0, together
    status, refused = train(1, BIG, LIMIT_MB)
    assert status != 0, refused
    (peak, losses), (peak_of_four, same) = map(told, (alone, together))
    np.testing.assert_allclose(same, losses, 1e-5)
    # A rank has a quarter of the weights; what it sends and receives comes on top.
    assert peak_of_four < 0.45 * peak


#: How much memory steps of a schedule take, beyond what there is between steps.
STEPS = """
import sys

import keras
import tensorflow as tf

import tnt_notebook as tnt
from tnt_notebook.parallel.data.shard import Replica, shard
from tnt_notebook.plan.families import make
from tests.pipeline.test_memory import peak_bytes

keras.utils.set_random_seed(1)
schedule, micro_batches, rows = sys.argv[1], 8, 4096
width, layers = 128, 12
model = keras.Sequential(
    [keras.Input((width,)), *(keras.layers.Dense(width, "relu") for _ in range(layers))]
)
model.compile("sgd", "mse", jit_compile=False)
x = tf.random.normal((micro_batches * rows, width))
cut = [model.layers[layers // 2].name]
trained = tnt.Model(model, pipeline=tnt.Pipeline(2, micro_batches, schedule, cut_at=cut))
trained.fit(x, x, batch_size=micro_batches * rows, verbose=0)
functions = trained._session.functions_of(model)
stages = next(iter(functions.placement._functions.values()))
data = iter(shard(tf.data.Dataset.from_tensors((x, x)), Replica(0, 1)).repeat())


def kilobytes(name):
    status = open("/proc/self/status").read()
    return int(status.split(name + ":")[1].split()[0])


model.train_function(data)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins here
before = kilobytes("VmRSS")
for _ in range(2):
    model.train_function(data)
peak, over = kilobytes("VmHWM") - before, tnt.world()
held = peak_bytes(make(schedule, 2, micro_batches).actions[over.rank], stages, rows)
for rank in range(over.size):
    over.barrier()
    if rank == over.rank:
        print("rank", rank, peak * 1.024e-3, held * 1e-6, flush=True)
"""


def peak_bytes(actions: Sequence[Action], stages: Mapping[int, StageFunctions], rows: int) -> int:
    """The most bytes that are held between two actions of a rank, for micro-batches of ``rows``.

    What comes and goes within an action is not counted, nor are the model's inputs and the labels:
    those of a micro-batch are a part of the batch, which is there anyway.
    """
    now = peak = 0
    for action in actions:
        stage = stages[action.stage]
        saved, between = _held(stage, rows, "BIW"), _held(stage, rows, "W")
        now += {"F": saved, "B": -saved, "I": between - saved, "W": -between}[action.kind]
        peak = max(peak, now)
    return peak


def _held(stage: StageFunctions, rows: int, kinds: str) -> int:
    """What is made before the parts of some kinds, for them."""
    parts = [stage.parts[kind] for kind in kinds if kind in stage.parts]
    there = {*stage.labels, *(stage.taken[value] for value in stage.model.stage.inputs)}
    there |= {name for part in parts for name in part.gives}
    taken: dict[str, int] = {}
    for part in parts:
        taken |= _sizes(part, rows)
    return sum(
        size for name, size in taken.items() if name not in there and not name.startswith("dy")
    )


def _sizes(part: Part, rows: int) -> dict[str, int]:
    """Bytes of what a function takes, by name."""
    return {
        name: math.prod(rows if n is None else n for n in tensor.shape) * tensor.dtype.size
        for name, tensor in zip(part.takes, part.function.inputs, strict=False)  # then captures
    }


def peaks(folder: Path, schedule: str) -> np.ndarray:
    """Of each rank: the peak, and that of what is held between actions; in MB."""
    # What is freed is given back at once.
    at_once = {"MALLOC_MMAP_THRESHOLD_": "65536", "TF_ENABLE_ONEDNN_OPTS": "0"}
    status, output = job.run(folder, 2, STEPS, schedule, **at_once)
    assert status == 0, output
    lines = [line.split() for line in output.splitlines() if line.startswith("rank ")]
    return np.array([[float(peak), float(held)] for _, _, peak, held in sorted(lines)])


def test_activations_are_freed_as_the_schedule_says(tmp_path):
    few, all_of_them = (peaks(tmp_path, name) for name in ("1f1b", "gpipe"))
    # What an action needs for itself is nearly the same in all: two activations, of 2 MB.
    for more in (all_of_them, *([peaks(tmp_path, "zb-h1")] if THOROUGH else [])):
        measured, computed = (more - few).T
        np.testing.assert_allclose(measured, computed, rtol=0.2, atol=9)
    measured, computed = all_of_them.T
    np.testing.assert_allclose(measured, computed, rtol=0.2)
