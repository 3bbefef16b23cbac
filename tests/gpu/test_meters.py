"""Memory and energy of a GPU in the frames of a run."""

import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tnt_notebook as tnt
from tests.gpu.nvml import Device
from tnt_notebook.parallel.observe import meters
from tnt_notebook.telemetry import Frame, energy_of, memory_of

MIB = 1 << 20
SECONDS = 3.0


def held_in_addition() -> int:
    with tf.device("/GPU:0"):
        first = tf.zeros((1,))  # what the first op loads counts, too
        before = meters.memory()
        held = tf.zeros((256, MIB // 4)) + first
        assert float(tf.reduce_sum(held)) == 0
        return meters.memory() - before


def test_the_memory_of_a_rank_has_what_it_holds_on_its_gpu(ranks):
    assert all(more >= 256 * MIB for more in ranks.run(2, held_in_addition))


def used() -> tuple[Any, Any, Any]:
    own = meters.gpu()
    with tf.device("/GPU:0"):
        float(tf.reduce_sum(tf.ones((64, MIB))))
    return own.load(), own.memory(), own.watts()


def test_a_gpu_says_how_busy_and_how_full_it_is_and_what_it_draws(ranks):
    ((load, (taken, whole), watts),) = ranks.run(1, used)
    assert 0 <= load <= 100 and 256 * MIB < taken <= whole and 5 < watts < 2000


class Bounded(keras.callbacks.Callback):
    """Stops after some seconds."""

    def on_train_begin(self, logs: dict | None = None) -> None:
        self.end = time.monotonic() + SECONDS

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self.model.stop_training = time.monotonic() > self.end


def reported() -> tuple[list[Frame], int, float, bool]:
    """Frames of a fit; whether this rank has a meter of its GPU, what it counts, and whether the
    host's processors count too."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(4096, "relu") for _ in range(4)]
    model = keras.Sequential([keras.Input((4096,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    x = np.ones((2048, 4096), np.float32)
    frames: list[Frame] = []
    begin = meters.gpu().joules()
    with tnt.distributed(report=frames.append):
        model.fit(x, x[:, :1], batch_size=512, epochs=10_000, callbacks=[Bounded()], verbose=0)
    own = meters.gpu()
    return frames, own.id, own.joules() - begin, meters.Rapl().joules() is not None


def test_frames_have_the_memory_of_ranks_and_the_energy_of_a_shared_gpu_once(
    ranks, gpu: Device
) -> None:
    begin = gpu.joules()
    outcomes: list[Any] = ranks.run(2, reported)
    whole = gpu.joules() - begin
    frames = outcomes[0][0]
    weights = 4 * (4 * 4096 * 4096)
    assert [of_rank >= weights for of_rank in memory_of(frames)] == [True, True]
    (_, first, counted, processors), (_, second, _, _) = outcomes
    assert first == second != 0
    assert 0 < counted <= whole
    energy = energy_of(frames)
    assert energy is not None and energy > 0
    if not processors:  # then it is that of the GPU: once, though both ranks use it
        assert energy <= counted
