"""What steps take beside their layers is measured on real ranks, once, and changes nothing."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tnt_notebook import comm
from tnt_notebook.comm import stop
from tnt_notebook.parallel.layer_graph.measurement_key import machine
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.training.overheads import overheads_of
from tnt_notebook.parallel.training.scope import call
from tnt_notebook.plan import measurements


def other_precision():
    """What rank 0 has timed before, in another precision, changes no key."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    machine.cache_clear()
    machine()
    keras.config.set_dtype_policy(policy)


def measured(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        over = comm.world()
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.Input((8,)), layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.5)]
        )
        model.compile("adam", "mse")
        before = [v.numpy() for v in model.variables]
        number = int(layers.Dense(1).name.split("_")[1])
        drawn = random.getstate()
        stop.end.set()  # a person ends the fit that all this is for
        if over.rank == 0:
            other_precision()
        found = [overheads_of(over, model, surveyed(model), 4, call) for _ in range(2)]
        assert drawn == random.getstate() and stop.end.is_set()
        stop.forget()
        after = [v.numpy() for v in model.variables]
        assert all(map(np.array_equal, before, after))
        assert layers.Dense(1).name.split("_")[1:] == [str(1 + number)]
        numbers = float(tf.random.uniform(())), np.random.rand()
        kept = sorted(path.name for path in measurements.file().parent.iterdir())
        return [vars(one) for one in found], numbers, kept


def test_it_is_measured_once_and_nothing_is_drawn(ranks, tmp_path):
    results = ranks.run(2, measured, str(tmp_path))
    for (first, second), numbers, kept in results:
        assert first == second == results[0][0][0]  # as rank 0 has measured
        assert numbers == results[0][1]
        assert {"busy.json", "optimizers.json", "speeds.json", "steps.json"} <= set(kept)
        assert first["step_s"] > 0 and first["variable_s"] >= 0 and first["busy"] >= 1
