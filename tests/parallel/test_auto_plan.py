"""``plan="auto"``: the first fit of a model looks for the best way to train it; what comes of it is
what that way gives where it is typed."""

import contextlib
import io
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tnt_notebook import comm
from tnt_notebook.errors import MemoryLimitError, ModelError
from tnt_notebook.parallel.data.batch_size import batch_size_of
from tnt_notebook.plan import measurements
from tnt_notebook.plan.fit_options import FitOptions
from tnt_notebook.plan.outcome import record
from tnt_notebook.plan.promise import Promise
from tnt_notebook.sizes import parsed_size


def mlp():
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(16, "tanh") for _ in range(2)]
    model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def wide():
    """Of a layer that has nearly all weights: it takes a mesh to divide them."""
    keras.utils.set_random_seed(3)
    layers = keras.layers.Dense(1024, "tanh"), keras.layers.Dense(1)
    model = keras.Sequential([keras.Input((8,)), *layers])
    model.compile("adam", "mse")
    return model


def data():
    x = np.random.default_rng(1).random((16, 8), "float32")
    return x, x.sum(1, keepdims=True)


def trained(options, make=mlp, given=None):
    """Weights, losses, the plan that was followed, and what rank 0 said."""
    model, said, frames = make(), io.StringIO(), []
    x, y = data()
    with contextlib.redirect_stdout(said), tnt.distributed(frames.append, **options) as session:
        before = model.evaluate(x, y, batch_size=4, verbose=0) if model.built else None
        history = model.fit(**(given or {"x": x, "y": y}), batch_size=4, epochs=2, verbose=0)
        after = model.evaluate(x, y, verbose=0)
        model.fit(**(given or {"x": x, "y": y}), batch_size=8, epochs=1, verbose=0)
        own = session.planned.get(model, session)
    assert len(session.runs) == (4 if before is not None else 3)
    plan = own.options.plan if isinstance(own.options.plan, Promise) else None
    weights = [w.tolist() for w in model.get_weights()]
    notes = [frame.get("plan", "") for frame in frames if frame["phase"] == "fit"]
    setups = [frame["setup"] for frame in frames if "setup" in frame and frame["phase"] == "fit"]
    promised = {setup.get("promised_step_s") for setup in setups}
    return {
        "weights": weights, "losses": [before, *history.history["loss"], after], "plan": plan,
        "said": said.getvalue(), "notes": [*dict.fromkeys(notes)], "promised": promised,
    }  # fmt: skip


def close(one, other):
    assert np.allclose(one["losses"][1:], other["losses"][1:], rtol=1e-5)
    for a, b in zip(one["weights"], other["weights"], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def auto(make=mlp, memory_limit=None):
    found = trained({"plan": "auto", "memory_limit": memory_limit}, make)
    typed = trained(typed_options(found["plan"]), make)
    return found, typed


def typed_options(plan):
    typed = FitOptions.of(plan.options)
    return {name: getattr(typed, name) for name in plan.options}


@pytest.mark.parametrize(
    ("make", "limit", "options"),
    [(mlp, None, set()), (mlp, "9KB", set()), (wide, "120KB", {"mesh", "memory_limit"})],
)
def test_it_is_as_typed(ranks, make, limit, options):
    for rank, (found, typed) in enumerate(ranks.run(2, auto, make, limit)):
        close(found, typed)
        plan = found["plan"]
        assert (plan.ranks, plan.batch_size) == (2, 4)
        assert found["said"].count("plan: ") == (rank == 0)
        if rank == 0:
            assert f"plan: {plan.words}\n" in found["said"]
            assert found["notes"][0] == f"plan: {plan.words}"
            assert "for batches of 4 samples, and these have 8" in found["notes"][-1]
            assert found["promised"] <= {None, float(f"{plan.step_s:.4g}")}
        if limit is not None:
            assert plan.rank_bytes <= parsed_size(limit) and options <= set(plan.options)


class Tired(keras.layers.Layer):
    """Takes its time for each sample: on rank 1 four times as long."""

    def call(self, x):
        each = 0.024 if comm.rank() == 1 else 0.006

        def rest(rows):
            # Asleep, and not at work: what else the machine does makes no rank slower then.
            time.sleep(each * rows)
            return rows

        rested = tf.numpy_function(rest, [tf.shape(x)[0]], tf.int32)
        with tf.control_dependencies([rested]):
            return tf.identity(x)


def tired():
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((8,)), Tired(), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def uneven():
    found, typed = auto(tired)
    return found, typed, trained({}, tired)


def test_a_rank_that_is_slower_has_less_to_do(ranks):
    for found, typed, equal in ranks.run(2, uneven):
        close(found, typed)
        close(found, equal)
        quick, slow = found["plan"].options["shares"]
        assert 2 < quick / slow < 8
        assert found["plan"].step_s < 2 * 0.024  # of which it would have two otherwise


def by_plan():
    plan = Promise({"exchange": "sharded"}, 2, 4, 1.0, 1, 1.0)
    return trained({"plan": plan}, wide), trained({"exchange": "sharded"}, wide), trained({}, wide)


def test_a_plan_says_what_replicas_exchange(ranks):
    for planned, typed, whole in ranks.run(2, by_plan):
        close(planned, typed)
        close(planned, whole)
    with pytest.raises(ValueError, match="The plan is for the exchange sharded: leave out"):
        FitOptions(plan=Promise({"exchange": "sharded"}, 2, 4, 1.0, 1, 1.0), exchange="late")


def too_little():
    with pytest.raises(MemoryLimitError, match="No way fits into 1 KB a rank: even the smallest"):
        trained({"plan": "auto", "memory_limit": "1KB"})


def test_a_limit_is_kept_to(ranks):
    ranks.run(2, too_little)


class OwnCode(keras.Model):
    def __init__(self):
        super().__init__()
        self.last = keras.layers.Dense(1)

    def call(self, x):
        return self.last(tf.nn.tanh(x))


def own_code():
    keras.utils.set_random_seed(3)
    model = OwnCode()
    model.compile("adam", "mse")
    return model


def without_plan():
    whole = trained({}, own_code)
    found = trained({"plan": "auto"}, own_code)
    late = trained({"plan": "auto", "exchange": "local:every=2"})
    return whole, found, late


def test_what_cannot_be_planned_trains_in_whole_copies(ranks):
    for rank, (whole, found, late) in enumerate(ranks.run(2, without_plan)):
        close(whole, found)
        assert found["plan"] is late["plan"] is None
        if rank == 0:
            assert found["said"].count("plan: none, so ranks train whole copies of the model.") == 1
            assert "replicas train weights of their own" in late["said"]


def unbuilt():
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def of_unbuilt():
    found = trained({"plan": "auto"}, unbuilt)
    return found, trained(typed_options(found["plan"]), unbuilt)


def test_a_model_that_is_not_built_is_planned(ranks):
    for found, typed in ranks.run(2, of_unbuilt):
        close(found, typed)


def of_tnt_model():
    x, y = data()
    model, predicted = tnt.Model(mlp(), plan="auto"), []
    # Alone on rank 0, as without a plan, also through the tnt.Model.
    on_end = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: predicted.append(model.predict(x, verbose=0))
    )
    model.fit(x, y, batch_size=4, epochs=1, verbose=0, callbacks=[on_end])
    assert len(predicted) == (comm.rank() == 0)
    after = model.predict(x, verbose=0)
    assert all(np.allclose(after, one, atol=1e-6) for one in predicted)
    refused = pytest.raises(
        ModelError, match="has options of its own, and the cell asks for a plan"
    )
    with refused, tnt.distributed(plan="auto"):
        tnt.Model(mlp(), bucket_mb=1.0).fit(x, y, verbose=0)


def test_a_model_of_a_script_is_planned(ranks):
    ranks.run(2, of_tnt_model)


def learning():
    """What rank 0 said of two fits, what both promised, and what was kept after each."""
    x = np.random.default_rng(1).random((2400, 8), "float32")
    said, promises, kept, frames = [], [], [], []
    for _ in range(2):
        model, out = mlp(), io.StringIO()
        with contextlib.redirect_stdout(out), tnt.distributed(frames.append, plan="auto") as own:
            model.fit(x, x.sum(1), batch_size=4, epochs=2, verbose=0)
            promise = own.planned[model].options.plan
        said.append(out.getvalue())
        promises.append(promise)
        factors = [measurements.load_numbers(n, promise.model_key, 1) for n in ("busy", "beside")]
        kept.append((measurements.fits(promise.ranks_key), factors))
    return said, promises, kept, [frame["plan"] for frame in frames if frame["state"] != "running"]


def test_a_fit_by_plan_teaches_the_next_one(ranks):
    said, promises, kept, notes = ranks.run(2, learning)[0]
    first, second = promises
    for (fits, _), promise in zip(kept, promises, strict=True):
        assert fits[-1][0] == promise.step_s and fits[-1][1] > 0
    assert len(kept[1][0]) == len(kept[0][0]) + 1
    assert f"{record(kept[0][0])}\n" in said[1]
    # What is corrected, if samples tell it, is kept, and the next plan goes by that.
    assert first.model_key == second.model_key
    busy, beside = kept[0][1]
    assert beside == (second.beside,)
    if second.company:  # not of ranks that seemed to differ in speed
        assert busy == (second.busy,)
    for promise, (fits, _), note in zip(promises, kept, notes, strict=True):
        off = abs(fits[-1][1] / promise.step_s - 1)
        assert note.startswith(f"plan: {promise.words}")
        assert ("; the plan was " in note) == (off > 0.1)


def test_the_batch_size_of_input():
    x, y = data()
    assert batch_size_of(x, None) == 32 and batch_size_of([x, y], 7) == 7
    numbers = tf.data.Dataset.from_tensor_slices((x, y))
    batches = numbers.shuffle(8).batch(12).map(lambda x, y: (x, y)).prefetch(2)
    assert batch_size_of(batches, None) == batch_size_of(batches.repeat(), None) == 12
    assert batch_size_of(numbers.batch(16, drop_remainder=True), None) == 16
    assert batch_size_of(tf.data.Dataset.zip((batches, batches)), None) == 12
    assert batch_size_of(tf.data.Dataset.range(9).ragged_batch(4), None) == 4
    assert batch_size_of((one for one in [x]), None) is None
