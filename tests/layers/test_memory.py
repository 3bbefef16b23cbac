"""Ranks that divide a volume need that much less memory for it, each."""

import functools

import numpy as np
import pytest

from tests.comm import job

#: Trains a 3D U-Net on one volume of so many rows in each direction, divided in depth.
UNET = """
import sys

import keras
import numpy as np

import tnt_notebook as tnt

L, size = keras.layers, int(sys.argv[1])


def kilobytes(name):
    status = open("/proc/self/status").read()
    return int(status.split(name + ":")[1].split()[0])


def twice(x, filters):
    for _ in range(2):
        x = L.Conv3D(filters, 3, padding="same", activation="relu")(x)
    return x


keras.utils.set_random_seed(1)
x = keras.Input((size, size, size, 1))
top = twice(x, 8)
below = twice(L.MaxPooling3D(2)(top), 16)
up = twice(L.Concatenate()([L.UpSampling3D(2)(below), top]), 8)
model = keras.Model(x, L.Conv3D(1, 1)(up))
model.compile("sgd", "mse", jit_compile=False)
volume = np.random.default_rng(0).normal(size=(1, size, size, size, 1)).astype("float32")
world = tnt.world()
mesh = tnt.Mesh(depth=world.size) if world.size > 1 else None
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins here
before = kilobytes("VmRSS")
history = tnt.Model(model, mesh=mesh).fit(volume, volume, batch_size=1, epochs=2, verbose=0)
peak = kilobytes("VmHWM") - before
for rank in range(world.size):
    world.barrier()
    if rank == world.rank:
        print("rank", rank, peak / 1024, *history.history["loss"], flush=True)
"""


def told(output: str) -> tuple[np.ndarray, np.ndarray]:
    """By rank: the most memory that training took, in MB; and the losses."""
    lines = [line.split()[1:] for line in output.splitlines() if line.startswith("rank ")]
    numbers = np.array(sorted(lines, key=lambda line: int(line[0])), float)
    return numbers[:, 1], numbers[:, 2:]


@pytest.mark.thorough
def test_four_ranks_need_a_third_each_of_what_one_needs(tmp_path):
    # What is freed is given back at once.
    train = functools.partial(job.run, tmp_path, MALLOC_MMAP_THRESHOLD_="262144")
    status, alone = train(1, UNET, 128)
    assert status == 0, alone
    (peak,), (losses,) = told(alone)
    status, together = train(4, UNET, 128)
    assert status == 0, together
    peaks, same = told(together)
    np.testing.assert_allclose(same, np.broadcast_to(losses, same.shape), 1e-5)
    print(f"one process {peak:.0f} MB, ranks {peaks.round()} MB, {peaks.max() / peak:.3f} of it")
    # A quarter is each rank's part. On top come messages, and the inputs of convolutions, which are
    # kept for backward twice, as they were made and with their halo.
    assert peaks.max() < 0.4 * peak
