"""CosmoGAN: a network that makes maps of the mass in the universe, as a simulation would.

A generator makes maps out of noise, a discriminator tells them from true ones, and each learns from
the other (DCGAN: Radford et al., arXiv:1511.06434). Whether the maps are any good, their power
spectrum says, as in M. Mustafa et al., "CosmoGAN" (2019, arXiv:1706.02390).

    mpiexec -n 4 python cosmo_gan.py --samples 20000 --epochs 40
    sbatch --nodes 4 --ntasks-per-node 4 train.sbatch cosmo_gan.py --pixels 256 --samples 100000

The true maps are drawn by chance, by `mass_maps`. For data of your own, give an array in its place.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SLOPE = -2.5  # of the power spectrum: power goes with this power of the wave number


def mass_maps(samples: int, pixels: int, seed: int) -> np.ndarray:
    """Maps whose logarithm is a Gaussian random field: clumps of mass in an emptiness.

    Args:
        samples: how many.
        pixels: along a side.
        seed: the same maps for the same seed, on every rank.

    Returns:
        Maps (samples, pixels, pixels, 1), float32, between -1 and 1: densities, compressed so
        that clumps stay in sight of the rest.
    """
    chance = np.random.default_rng(seed)
    wave = np.hypot(np.fft.fftfreq(pixels)[:, None], np.fft.rfftfreq(pixels)) * pixels
    wave[0, 0] = np.inf  # the mean of a field is 0
    white = np.fft.rfft2(chance.normal(size=(samples, pixels, pixels)))
    field = np.fft.irfft2(white * wave ** (SLOPE / 2), s=(pixels, pixels))
    density = np.exp(0.8 * field / field.std())
    return np.tanh((density - density.mean()) / 2).astype("float32")[..., None]


def power_spectrum(maps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How much maps vary at each scale.

    Args:
        maps: (samples, pixels, pixels, 1).

    Returns:
        Wave numbers (pixels / 2 - 1,), as waves along a side; and the power of each map at each
        (samples, pixels / 2 - 1), the mean over directions.
    """
    pixels = maps.shape[1]
    power = np.abs(np.fft.fft2(maps[..., 0])) ** 2 / pixels**2
    wave = np.hypot(np.fft.fftfreq(pixels)[:, None], np.fft.fftfreq(pixels)) * pixels
    numbers = np.arange(1, pixels // 2)
    rings = [power[:, np.rint(wave) == number].mean(1) for number in numbers]
    return numbers, np.stack(rings, 1)


class Gan(keras.Model):
    """Two models that learn from each other, in a step of their own with two optimizers.

    Args:
        generator: of noise (latent,) to maps.
        discriminator: of maps to a number: positive for true ones.
    """

    def __init__(self, generator: keras.Model, discriminator: keras.Model) -> None:
        super().__init__()
        self.generator, self.discriminator = generator, discriminator
        self.means = [keras.metrics.Mean(name=f"{name}_loss") for name in ("d", "g")]

    def compile(self, d_optimizer: Any, g_optimizer: Any) -> None:
        super().compile(optimizer=None)
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
        self.cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return self.means

    def train_step(self, data: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        true, noise = data
        with tf.GradientTape() as tape:
            made = self.generator(noise, training=True)
            of_true = self.discriminator(true, training=True)
            of_made = self.discriminator(made, training=True)
            d_loss = self.cross_entropy(0.9 * tf.ones_like(of_true), of_true)
            d_loss += self.cross_entropy(tf.zeros_like(of_made), of_made)
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply(tape.gradient(d_loss, weights), weights)

        with tf.GradientTape() as tape:
            of_made = self.discriminator(self.generator(noise, training=True), training=True)
            g_loss = self.cross_entropy(tf.ones_like(of_made), of_made)
        weights = self.generator.trainable_weights
        self.g_optimizer.apply(tape.gradient(g_loss, weights), weights)

        for mean, loss in zip(self.means, (d_loss, g_loss), strict=True):
            mean.update_state(loss, sample_weight=tf.shape(true)[0])
        return {mean.name: mean.result() for mean in self.means}


def generator(latent: int, pixels: int, filters: int) -> keras.Model:
    """From 4 x 4 pixels on, each layer doubles a side and halves the filters.

    By repeating pixels, not by the transposed convolutions of DCGAN, which leave squares.
    """
    sizes = _sizes(pixels, filters)
    model = keras.Sequential([keras.Input((latent,))])
    model.add(layers.Dense(16 * sizes[0], use_bias=False))
    model.add(layers.Reshape((4, 4, sizes[0])))
    for size in sizes[1:]:
        model.add(layers.BatchNormalization(momentum=0.8, synchronized=True))
        model.add(layers.ReLU())
        model.add(layers.UpSampling2D())
        model.add(layers.Conv2D(size, 3, padding="same", use_bias=False))
    model.add(layers.BatchNormalization(momentum=0.8, synchronized=True))
    model.add(layers.ReLU())
    model.add(layers.UpSampling2D())
    model.add(layers.Conv2D(1, 3, padding="same", activation="tanh"))
    return model


def discriminator(pixels: int, filters: int) -> keras.Model:
    """The way back, to one number."""
    model = keras.Sequential([keras.Input((pixels, pixels, 1))])
    for size in reversed(_sizes(pixels, filters)):
        model.add(layers.Conv2D(size, 4, 2, padding="same"))
        model.add(layers.LeakyReLU(0.2))
    model.add(layers.Flatten())
    model.add(layers.Dense(1))
    return model


def _sizes(pixels: int, filters: int) -> list[int]:
    """How many filters there are at 4, 8, ... and half of the pixels of a side."""
    halvings = pixels.bit_length() - 3
    if pixels != 4 << halvings or halvings < 1:
        raise ValueError(f"pixels are to be 8, 16, 32 or another power of two, not {pixels}")
    return [filters << n for n in reversed(range(halvings))]


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Trains on all ranks that were started, and saves the generator.

    Args:
        arguments: of the command line.

    Returns:
        Losses of the discriminator and the generator by epoch.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=10_000, help="to train on")
    parser.add_argument("--pixels", type=int, default=64, help="along a side: 16, 32, 64, ...")
    parser.add_argument("--latent", type=int, default=64, help="numbers that a map is made of")
    parser.add_argument("--filters", type=int, default=64, help="at half the pixels of a side")
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--checkpoint", metavar="FOLDER", help="kept there; it goes on from it")
    parser.add_argument("--save", metavar="FILE", default="cosmo_gan.keras", help="the generator")
    given = parser.parse_args(arguments)

    import tnt_notebook as tnt

    keras.utils.set_random_seed(1)
    maps = mass_maps(given.samples, given.pixels, seed=1)
    noise = np.random.default_rng(2).normal(size=(given.samples, given.latent)).astype("float32")
    gan = Gan(
        generator(given.latent, given.pixels, given.filters),
        discriminator(given.pixels, given.filters),
    )
    checkpoint = tnt.Checkpoint(given.checkpoint) if given.checkpoint else None
    model = tnt.Model(gan, checkpoint=checkpoint)
    model.compile(keras.optimizers.Adam(1e-3, 0.5), keras.optimizers.Adam(1e-3, 0.5))
    history = model.fit(maps, noise, batch_size=given.batch_size, epochs=given.epochs, verbose=2)
    if tnt.world().rank == 0:
        gan.generator.save(given.save)
    return history.history


if __name__ == "__main__":
    main()
