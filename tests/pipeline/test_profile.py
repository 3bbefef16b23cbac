"""What layers take is measured once, and kept."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.pipeline.models import MODELS, numbers
from tnt_notebook.parallel.layer_graph.graph import trained_values, wiring_of
from tnt_notebook.parallel.layer_graph.profile import is_measured, profile_of, slots_of
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layer_graph.timing import sample, whole_run
from tnt_notebook.parallel.pipeline.predict import Planner
from tnt_notebook.parallel.pipeline.stage import StageFunctions, stage_models
from tnt_notebook.plan import measurements
from tnt_notebook.plan.measurements import MOST_ENTRIES, Measured
from tnt_notebook.plan.network import ASSUMED
from tnt_notebook.plan.partition import partition
from tnt_notebook.plan.profile import load_of


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tnt_notebook" / "profile.json"


def counted(model, rows=4):
    """A profile, and how many measurements it took."""
    seen = []
    profile = profile_of(
        model, surveyed(model), rows, lambda done, total: seen.append(total), together=True
    )
    return profile, max(seen, default=0)


def test_all_layers_together_do_what_a_step_does():
    """What is timed is not left out by TensorFlow, as what nobody gets would be."""
    convolutions = (layers.Conv2D(4, 3, activation="relu") for _ in range(3))
    model = keras.Sequential([keras.Input((12, 12, 3)), *convolutions, layers.Flatten()])
    graph = surveyed(model)
    run = whole_run(graph, trained_values(graph), 5)
    x = sample(graph.spec(graph.inputs[0]), 5)
    with tf.GradientTape() as tape:
        y = model(x, training=True)
    expected = tape.gradient(y, [v.value for v in model.trainable_variables])
    np.testing.assert_allclose(run("F")[0], y, rtol=1e-5)
    for recompute in (False, True):
        outputs, *gradients = run("FB", recompute)
        np.testing.assert_allclose(outputs, y, rtol=1e-5)
        for gradient, wanted in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-4)


def test_what_a_loop_keeps_is_counted(cache):
    def kept(steps: int) -> int:
        model = keras.Sequential([keras.Input((steps, 8)), layers.LSTM(32)])
        return sum(profile_of(model, surveyed(model), 16).inner_bytes)

    of_a_step = 16 * 32 * 4  # four gates, a state and an output, at least
    assert kept(20) > 20 * 6 * of_a_step
    assert kept(40) == pytest.approx(2 * kept(20), rel=0.02)


def measured_twice(folder, name, different):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        keras.utils.set_random_seed(1)
        first_model, model = MODELS[name](), MODELS[name]()
        weights = first_model.get_weights()
        first, needed = counted(first_model)
        assert all(map(np.array_equal, weights, first_model.get_weights()))
        second, again = counted(model)
        assert needed == different and again == 0
        assert first.seconds == second.seconds and first.kept == second.kept
        assert all(s > 0 for s in first.weights[:1]) and min(first.forward) >= 0
        third, other = counted(model, 5)
        assert other == different
        assert sum(third.value_bytes.values()) * 4 == sum(first.value_bytes.values()) * 5
        file = measurements.file()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.write_text(file.read_text()[:-9])  # as of a disk that was full
        assert counted(model)[1] == different
        json.loads(file.read_text())
        file.unlink()
        file.parent.rmdir()
        file.parent.write_text("not a folder")
        assert counted(model)[1] == different


@pytest.mark.parametrize(("name", "different"), [("mlp", 3), ("residual", 9), ("nested", 3)])
def test_the_second_time_nothing_is_measured(ranks, tmp_path, name, different):
    ranks.run(1, measured_twice, str(tmp_path), name, different)


def together(folder, name):
    """Profiles of calls that were timed alone, then together, and of what is known by then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        model = MODELS[name]()
        graph = surveyed(model)
        return [profile_of(model, graph, 8, together=which) for which in (False, True, False)]


@pytest.mark.parametrize("name", ["mlp", "residual", "nested"])
def test_each_call_takes_its_part_of_what_all_of_them_take(ranks, tmp_path, name):
    ((alone, both, again),) = ranks.run(1, together, str(tmp_path), name)
    assert both == again
    for part in ("forward", "inputs", "weights"):
        before, after = getattr(alone, part), getattr(both, part)
        share = sum(after) / sum(before)
        assert after == pytest.approx([share * seconds for seconds in before])
    assert sum(both.seconds) != sum(alone.seconds)
    assert (both.kept, both.inner_bytes) == (alone.kept, alone.inner_bytes)


def by_ranks(folder):
    """What is measured for the best ways on 3 ranks, and for those on fewer and more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        model, measured = MODELS["mlp"](), []
        graph = surveyed(model)
        planner = Planner(model, 24, 3, lambda done, of: measured.append(done))
        _, plans = planner.best(3, ASSUMED, float("inf"))
        first = len(measured)
        rows = planner.by_ranks(plans[0], ASSUMED, float("inf"))
        known = [n for n in range(1, 25) if is_measured(model, graph, n, together=True)]
        return first, len(measured) - first, rows, known


def test_nothing_more_is_measured_for_other_numbers_of_ranks(ranks, tmp_path):
    ((first, more, rows, known),) = ranks.run(1, by_ranks, str(tmp_path))
    assert first > 0 and more == 0
    # Of one rank of three: 8, 4, 2, 1; of all in a pipeline: 24, 12, 6, 3, 2.
    assert known == [1, 2, 3, 4, 6, 8, 12, 24]
    assert [row["ranks"] for row in rows] == [1, 2, 3, 6, 12]


def profiled(name, rows):
    model = MODELS[name]()
    model.compile("adam", "mse")
    return profile_of(model, surveyed(model), rows)


def test_what_is_kept_for_backward(ranks):
    (of_mlp,) = ranks.run(1, profiled, "mlp", 4)
    # A Dense keeps what it takes and, for the slope of tanh, what it gives; the last has no slope.
    assert of_mlp.kept[0] == (0, 1) and of_mlp.kept[-1] == (6,)
    assert set(of_mlp.inner_bytes) == {0}
    assert of_mlp.value_bytes[0] == 4 * 8 * 4
    assert of_mlp.inputs[0] == 0 < of_mlp.inputs[1]  # nobody wants the gradient of the input
    assert of_mlp.slots == 2 and of_mlp.uses[0] == (0, 1)
    assert of_mlp.variables[0].elements == 8 * 16
    weights = 4 * (8 * 16 + 16 + 5 * (16 * 16 + 16) + 16 * 3 + 3)
    assert sum(map(of_mlp.state_bytes, range(len(of_mlp.variables)))) == 3 * weights
    (large,) = ranks.run(1, profiled, "transformer", 128)
    (small,) = ranks.run(1, profiled, "transformer", 64)
    assert sum(large.inner_bytes) == pytest.approx(2 * sum(small.inner_bytes), rel=0.05)
    (more,) = ranks.run(1, profiled, "mlp", 128)
    (fewer,) = ranks.run(1, profiled, "mlp", 64)  # on which the line goes on
    assert all(a >= b for a, b in zip(more.seconds, fewer.seconds, strict=True))


def slots():
    known = keras.optimizers
    scaled = known.LossScaleOptimizer(known.Adam())
    return list(map(slots_of, [known.SGD(), known.SGD(momentum=0.9), None, known.Adam(), scaled]))


def test_state_of_the_optimizer(ranks):
    assert ranks.run(1, slots) == [[0, 1, 0, 2, 2]]


def own_layers():
    class Scaled(layers.Layer):
        def call(self, x):
            return 2 * x

    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(2)(Scaled()(x)))
    return [counted(model)[1] for _ in range(2)][1], numbers(1).shape


def test_own_layers_may_have_changed_and_are_measured_again(ranks):
    ((again, _),) = ranks.run(1, own_layers)
    assert again == 1


def test_entries_that_are_none_are_passed_over(cache):
    good = Measured(1.0, 2.0, 3.0, 4.0, 5.0, ("x0",))
    measurements.save({"good": good})
    table = json.loads(cache.read_text())
    table["entries"] |= {
        "short": [1],
        "negative": [-1, 0, 0, 0, 0, []],
        "text": ["1", 0, 0, 0, 0, []],
    }
    cache.write_text(json.dumps(table))
    assert measurements.load() == {"good": good}
    for broken in ("[]", "{", '{"version": 99, "entries": {}}', '{"version": 2, "entries": 3}', ""):
        cache.write_text(broken)
        assert measurements.load() == {}


def test_writers_at_the_same_time_leave_a_whole_file_of_bounded_size(cache: Path):
    def write(number: int) -> None:
        for i in range(20):
            measurements.save({f"{number}-{i}-{k}": Measured(1, 1, 1, 1, 1, ()) for k in range(5)})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert measurements.load() and list(cache.parent.iterdir()) == [cache]
    measurements.save({str(k): Measured(k, 1, 1, 1, 1, ()) for k in range(MOST_ENTRIES + 10)})
    known = measurements.load()
    assert len(known) == MOST_ENTRIES and "0" not in known and str(MOST_ENTRIES + 9) in known


def square(outputs, labels):
    return [tf.reduce_sum(tf.square(keras.tree.flatten(outputs)[0]))], []


def kept_by_stages(name, rows):
    """Bytes that backward of each stage takes: as profiled, and as its functions have them."""
    model = MODELS[name]()
    graph, found = surveyed(model), []
    profile, wiring = profile_of(model, graph, rows), wiring_of(graph)
    cut = partition(wiring, [len(graph.calls) // 2])
    for stage in stage_models(model, graph, cut):
        load = load_of(wiring, profile, stage.stage.begin, stage.stage.end)
        functions = StageFunctions(
            stage, [tf.TensorSpec((), tf.int64)] * 3, square, "FB", training=True
        )
        arguments = [sample(graph.spec(v), rows) for v in stage.values]
        values = dict(zip(functions.parts["F"].takes, arguments, strict=False))
        labels = [tf.constant(rows, tf.int64)] * (len(functions.parts["F"].takes) - len(arguments))
        results = functions.parts["F"].function(*arguments, *labels)
        values |= dict(zip(functions.parts["F"].gives, results, strict=True))
        taken = [n for n in functions.parts["B"].takes if not n.startswith("dy") and n in values]
        found.append((load.held_bytes, sum(values[n].numpy().nbytes for n in taken)))
    return found


@pytest.mark.parametrize("name", ["mlp", "residual", "unet", "transformer", "nested"])
def test_memory_of_activations_is_what_stages_keep(ranks, name):
    (found,) = ranks.run(1, kept_by_stages, name, 16)
    (first, as_kept), (last, as_kept_too) = found
    assert first == pytest.approx(as_kept, rel=0.01)
    # The loss itself keeps something, too: here the squares of the outputs.
    assert 0.85 * as_kept_too < last < 1.01 * as_kept_too
