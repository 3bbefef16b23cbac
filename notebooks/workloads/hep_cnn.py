"""HEP-CNN: a convolutional network that finds decays of a heavy particle in images of a detector.

A heavy particle that is fast decays into two jets so close that a detector sees one. The network
tells them from the far more frequent jets of a single quark or gluon. It is that of Kurth et al.,
"Deep Learning at 15PF" (SC'17, arXiv:1708.05256): five convolutions with pooling, 594,178 weights.

    mpiexec -n 4 python hep_cnn.py --samples 100000 --epochs 10
    sbatch --nodes 4 --ntasks-per-node 4 train.sbatch hep_cnn.py --samples 1000000

The jets are drawn by chance, by `jets`. For data of your own, give two arrays in their place.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

PARTICLES = 80  # of a jet, on average
WIDTH = 0.09  # of the shower of a prong, in eta and in phi
CHARGED, PHOTONS = 0.6, 0.25  # parts of the particles; the rest are neutral hadrons


def jets(samples: int, pixels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of jets, half of them with two prongs.

    Pixels are squares in pseudorapidity eta and azimuth phi around the harder prong, from -1 to 1.
    A decay shares its momentum about evenly, at an angle that its mass wants; a single quark
    radiates gluons too, but mostly soft ones, at any angle. So some look like the other kind.

    Args:
        samples: how many.
        pixels: along a side, an even number.
        seed: the same jets for the same seed, on every rank.

    Returns:
        Images (samples, pixels, pixels, 3), float32: the logarithm of 1 + the energy in the
        electromagnetic (ECAL) and hadronic (HCAL) calorimeters, in GeV, and of 1 + the number of
        tracks; and labels (samples,), int32: 1 for a decay.
    """
    chance = np.random.default_rng(seed)
    labels = chance.integers(0, 2, samples).astype("int32")
    decays = labels == 1
    share = np.where(
        decays, chance.uniform(0.2, 0.5, samples), 0.5 * chance.power(0.35, samples)
    )  # of the softer prong
    angle = np.where(decays, chance.normal(0.6, 0.08, samples), chance.uniform(0.1, 0.9, samples))
    turn = chance.uniform(0, 2 * np.pi, samples)
    softer = angle[:, None] * np.stack([np.cos(turn), np.sin(turn)], -1)

    count = chance.poisson(PARTICLES, samples)
    jet = np.repeat(np.arange(samples), count)  # of each particle
    is_softer = chance.random(len(jet)) < share[jet]
    place = is_softer[:, None] * softer[jet] + chance.normal(0, WIDTH, (len(jet), 2))
    energy = chance.exponential(400 / PARTICLES, len(jet))
    kind = chance.random(len(jet))
    is_charged, is_photon = kind < CHARGED, kind > 1 - PHOTONS

    images = np.zeros((samples, pixels, pixels, 3), "float32")
    for channel, (seen, value, cell) in enumerate((
        (is_photon, energy, 1),
        (~is_photon, energy, 2),  # a hadronic calorimeter has larger cells
        (is_charged, np.ones_like(energy), 1),
    )):  # fmt: skip
        cells = pixels // cell
        at = np.floor((place + 1) / 2 * cells).astype(int)
        seen = seen & ((at >= 0) & (at < cells)).all(1)
        index = (jet[seen] * cells + at[seen, 0]) * cells + at[seen, 1]
        sums = np.bincount(index, value[seen], samples * cells * cells)
        image = sums.reshape(samples, cells, cells) / cell**2
        images[..., channel] = np.log1p(image.repeat(cell, 1).repeat(cell, 2))
    return images, labels


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Trains on all ranks that were started, and saves the model.

    Args:
        arguments: of the command line.

    Returns:
        Loss and accuracy by epoch.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=20_000, help="to train on")
    parser.add_argument("--pixels", type=int, default=64, help="along a side of an image")
    parser.add_argument("--filters", type=int, default=128, help="of each convolution")
    parser.add_argument("--batch-size", type=int, default=256, help="of all ranks together")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--stages", type=int, default=1, help="ranks of a pipeline; 1: without")
    parser.add_argument("--checkpoint", metavar="FOLDER", help="kept there; it goes on from it")
    parser.add_argument("--save", metavar="FILE", default="hep_cnn.keras", help="of the model")
    given = parser.parse_args(arguments)

    import keras

    import tnt_notebook as tnt

    keras.utils.set_random_seed(1)
    images, labels = jets(given.samples, given.pixels, seed=1)
    validation = jets(given.samples // 5, given.pixels, seed=2)

    model = keras.Sequential([keras.Input(images.shape[1:])])
    for _ in range(4):
        model.add(keras.layers.Conv2D(given.filters, 3, padding="same", activation="relu"))
        model.add(keras.layers.MaxPooling2D())
    model.add(keras.layers.Conv2D(given.filters, 3, padding="same", activation="relu"))
    model.add(keras.layers.GlobalAveragePooling2D())
    model.add(keras.layers.Dense(2, activation="softmax"))

    pipeline = tnt.Pipeline(given.stages, micro_batches=4) if given.stages > 1 else None
    checkpoint = tnt.Checkpoint(given.checkpoint) if given.checkpoint else None
    model = tnt.Model(model, pipeline=pipeline, checkpoint=checkpoint)
    model.compile(
        keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    history = model.fit(
        images, labels, batch_size=given.batch_size, epochs=given.epochs,
        validation_data=validation, verbose=2,
    )  # fmt: skip
    if tnt.world().rank == 0:
        model.save(given.save)
    return history.history


if __name__ == "__main__":
    main()
