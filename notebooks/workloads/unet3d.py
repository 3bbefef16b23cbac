"""A 3D U-Net that outlines lesions in scans of heads, on ranks that have a part of each volume.

That of Çiçek et al., "3D U-Net" (MICCAI 2016, arXiv:1606.06650), trained on overlap and
cross-entropy as nnU-Net is (Isensee et al., Nature Methods 2021). Volumes are cut along their
depth: each rank has some slices of everything that the network computes, and gets those beyond
their edges from the ranks beside it.

    mpiexec -n 4 python unet3d.py --mesh depth=4 --shape 64,96,96
    sbatch --nodes 4 --ntasks-per-node 4 --gpus-per-node 4 train.sbatch unet3d.py --mesh depth=8 \
        --images scans.npy --labels lesions.npy

Without files, heads are drawn by chance, by `heads`.
"""

from __future__ import annotations

import argparse
import math
import resource
from collections.abc import Sequence

import keras
import numpy as np
from keras import layers, ops

#: How bright tissues are in the two pictures of a head, T1 and FLAIR.
TISSUES = {
    "air": (0.02, 0.02), "scalp": (0.90, 0.70), "skull": (0.10, 0.08), "fluid": (0.18, 0.10),
    "grey": (0.55, 0.62), "white": (0.80, 0.48), "lesion": (0.50, 1.00),
}  # fmt: skip


def heads(samples: int, shape: Sequence[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scans of heads, drawn by chance: ellipsoids of tissue, with lesions in the white matter.

    Two pictures of each, as magnetic resonance makes them: T1, in which fluid is dark, and FLAIR,
    in which lesions are bright. Coils see what is near them brighter, and there is noise.

    Args:
        samples: how many.
        shape: voxels along depth, height, width.
        seed: the same heads for the same seed, on every rank.

    Returns:
        Volumes (samples, depth, height, width, 2), float32, of mean 0 and deviation 1; and labels
        (samples, depth, height, width, 1), float32: 1 in a lesion.
    """
    chance = np.random.default_rng(seed)
    pairs = [_head(shape, chance) for _ in range(samples)]
    volumes, labels = (np.stack(some).astype("float32") for some in zip(*pairs, strict=True))
    return volumes, labels


def _head(shape: Sequence[int], chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    axes = (np.linspace(-1, 1, n) for n in shape)
    z, y, x = np.meshgrid(*axes, indexing="ij")
    edge = 1.5 / min(shape[1:])  # voxels at an edge have parts of both tissues
    tilt = chance.normal(0, 0.12)
    y, x = np.cos(tilt) * y - np.sin(tilt) * x, np.cos(tilt) * x + np.sin(tilt) * y
    size = chance.uniform(0.9, 1.02, 3) * (0.95, 0.93, 0.78)

    def inside(radii: Sequence[float], centre: Sequence[float] = (0, 0, 0), folds: float = 0.0):
        """How much of each voxel is inside of an ellipsoid, in parts of the size of the head."""
        u, v, w = (
            (at / whole - middle) / radius
            for at, whole, middle, radius in zip((z, y, x), size, centre, radii, strict=True)
        )
        far = np.sqrt(u**2 + v**2 + w**2) + 1e-6
        if folds:
            turn, lift = np.arctan2(v, w), u / far
            wave = np.sin(13 * turn + phase[0]) * np.cos(9 * lift + phase[1])
            far = far + folds * wave * (1 - lift**2)  # none where all turns meet
        depth = (1 - far) * min(radii) * min(size)
        return 1 / (1 + np.exp(-4 * np.clip(depth / edge, -20, 20)))

    phase = chance.uniform(0, 2 * np.pi, 2)
    parts = [
        ("scalp", inside((1, 1, 1))), ("skull", inside((0.93, 0.93, 0.92))),
        ("fluid", inside((0.85, 0.86, 0.84))), ("grey", inside((0.82, 0.83, 0.81), folds=0.03)),
        ("white", inside((0.68, 0.70, 0.67), folds=0.10)),
    ]  # fmt: skip
    wide = chance.uniform(0.8, 1.4)
    for side in -1, 1:
        parts.append(("grey", inside((0.16, 0.20, 0.13), (-0.12, 0.08, 0.22 * side))))
        parts.append(("fluid", inside((0.22, 0.36, 0.09 * wide), (0.12, -0.02, 0.13 * side))))
    parts.append(("fluid", inside((0.62, 0.83, 0.018))))  # between the halves
    lesions = np.zeros(shape)
    for _ in range(chance.integers(1, 6)):
        away = chance.normal(size=3)
        away *= chance.uniform(0.30, 0.52) / np.linalg.norm(away)
        one = inside(chance.uniform(0.1, 0.24, 3), away, folds=0.15)
        lesions = np.maximum(lesions, one)
    parts.append(("lesion", lesions))

    volume = np.empty((*shape, 2))
    volume[:] = TISSUES["air"]
    for name, share in parts:
        own = np.array(TISSUES[name]) * chance.normal(1, 0.03, 2)
        volume += share[..., None] * (own - volume)
    bright = sum(chance.normal(0, 0.12) * wave for wave in (z, y, x, y * x, z * y, x**2))
    volume *= np.exp(bright)[..., None]
    noise = chance.normal(0, 0.04, (2, *volume.shape))
    volume = np.hypot(volume + noise[0], noise[1])  # the strength of a complex signal
    volume = (volume - volume.mean((0, 1, 2))) / volume.std((0, 1, 2))
    return volume, lesions[..., None] > 0.5


def unet(shape: Sequence[int], filters: int = 32, levels: int = 4) -> keras.Model:
    """The network: down with ever more features, up again, and across at each resolution.

    Args:
        shape: of a volume, (depth, height, width, channels); the first three can be halved
            ``levels - 1`` times.
        filters: at the full resolution; at each lower one twice as many.
        levels: resolutions.
    """
    x = seen = keras.Input(shape)
    across = []
    for level in range(levels - 1):
        x = _features(x, filters << level, f"down{level}")
        across.append(x)
        x = layers.MaxPooling3D(2, name=f"halved{level}")(x)
    x = _features(x, filters << levels - 1, "bottom")
    for level in reversed(range(levels - 1)):
        up = layers.Conv3DTranspose(filters << level, 2, 2, name=f"doubled{level}")(x)
        x = _features(layers.Concatenate()([across[level], up]), filters << level, f"up{level}")
    lesion = layers.Conv3D(
        1, 1, activation="sigmoid", dtype="float32", name="lesion",
        bias_initializer=keras.initializers.Constant(-3),  # at first, one voxel in twenty
    )  # fmt: skip
    return keras.Model(seen, lesion(x))


def _features(x: keras.KerasTensor, filters: int, name: str) -> keras.KerasTensor:
    for number in 1, 2:
        convolution = layers.Conv3D(
            filters, 3, padding="same", use_bias=False, name=f"{name}_conv{number}"
        )
        norm = layers.BatchNormalization(momentum=0.8, synchronized=True)
        x = layers.ReLU()(norm(convolution(x)))
    return x


@keras.saving.register_keras_serializable("unet3d")
def overlap_loss(truth: keras.KerasTensor, found: keras.KerasTensor) -> keras.KerasTensor:
    """Of each volume: what is missing to a full overlap, and the cross-entropy of its voxels."""
    overlap = (2 * _sums(truth * found) + 1) / (_sums(truth + found) + 1)
    entropy = ops.mean(keras.losses.binary_crossentropy(truth, found), axis=(1, 2, 3))
    return 1 - overlap + entropy


@keras.saving.register_keras_serializable("unet3d")
def dice(truth: keras.KerasTensor, found: keras.KerasTensor) -> keras.KerasTensor:
    """Of each volume the Dice score: twice the voxels in both outlines, by the sum of those in
    each. 1: they are the same, 0: they have none in common."""
    found = ops.cast(found > 0.5, truth.dtype)
    return (2 * _sums(truth * found) + 1e-6) / (_sums(truth + found) + 1e-6)


def _sums(x: keras.KerasTensor) -> keras.KerasTensor:
    return ops.sum(x, axis=(1, 2, 3, 4))


def activations(model: keras.Model, parts: int = 1) -> int:
    """Bytes that a rank keeps of a volume from the forward to the backward computation: what each
    layer gives, in so many parts along the depth, with the slices that convolutions want from the
    ranks beside it.

    Args:
        model: one that has been made for volumes of a certain shape.
        parts: ranks along the depth.
    """
    kept = 0
    for layer in model.layers[1:]:
        depth, *rest = layer.output.shape[1:]
        kept += _slices(depth, parts, 0) * math.prod(rest)
        if isinstance(layer, layers.Conv3D) and layer.kernel_size[0] > 1 and parts > 1:
            depth, *rest = layer.input.shape[1:]  # with a halo it is another tensor
            kept += _slices(depth, parts, 2) * math.prod(rest)
    return kept * np.dtype(model.compute_dtype).itemsize


def _slices(depth: int, parts: int, more: int) -> int:
    return min(depth, -(-depth // parts) + more)


def most_memory() -> int:
    """The most bytes that this process has had in memory, until now."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Trains on all ranks that were started, and saves the model.

    Args:
        arguments: of the command line.

    Returns:
        Loss and Dice score by epoch.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    file = {"metavar": "FILE"}
    parser.add_argument(
        "--images", **file, help=".npy of (samples, depth, height, width, channels); default: drawn"
    )
    parser.add_argument("--labels", **file, help=".npy of (samples, depth, height, width, 1)")
    parser.add_argument("--samples", type=int, default=40, help="to draw")
    parser.add_argument("--shape", default="64,96,96", help="of what is drawn")
    parser.add_argument("--held-back", type=int, default=4, help="volumes not to train on")
    parser.add_argument("--filters", type=int, default=32, help="at the full resolution")
    parser.add_argument("--levels", type=int, default=4, help="resolutions")
    parser.add_argument("--mesh", help="of ranks: default depth=RANKS")
    parser.add_argument("--precision", default="float32", help="mixed_float16, mixed_bfloat16, ...")
    parser.add_argument("--batch-size", type=int, default=2, help="of all ranks together")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--checkpoint", metavar="FOLDER", help="kept there; it goes on from it")
    parser.add_argument("--save", metavar="FILE", default="unet3d.keras", help="of the model")
    given = parser.parse_args(arguments)
    if (given.images is None) != (given.labels is None):
        parser.error("--images and --labels go together")

    import tnt_notebook as tnt

    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(given.precision)
    if given.images:  # pages of the files come as they are read
        volumes, labels = (np.load(name, mmap_mode="r") for name in (given.images, given.labels))
    else:
        shape = [int(size) for size in given.shape.split(",")]
        volumes, labels = heads(given.samples + given.held_back, shape, seed=1)
    count = len(volumes) - given.held_back
    model = unet(volumes.shape[1:], given.filters, given.levels)

    ranks = tnt.world()
    mesh = tnt.Mesh.parsed(given.mesh or f"depth={ranks.size}")
    if ranks.rank == 0:
        for what, parts in (("one rank", 1), (f"each rank of {mesh}", mesh.along("depth"))):
            print(f"{what} keeps {activations(model, parts) / 1e9:.2f} GB of activations a volume")
    checkpoint = tnt.Checkpoint(given.checkpoint) if given.checkpoint else None
    if mesh.size > 1:
        model = tnt.Model(model, mesh=mesh, checkpoint=checkpoint)
    else:
        model = tnt.Model(model, checkpoint=checkpoint)
    model.compile(keras.optimizers.Adam(1e-3), overlap_loss, metrics=[dice])
    before = most_memory()
    held_back = (volumes[count:], labels[count:]) if given.held_back else None
    history = model.fit(
        volumes[:count], labels[:count], batch_size=given.batch_size, epochs=given.epochs,
        validation_data=held_back, verbose=2,
    )  # fmt: skip
    grown = ranks.allgather(np.array([most_memory() - before]))
    if ranks.rank == 0:
        print("to train took", *(f"{more / 1e9:.2f}" for more in grown), "GB more, by rank")
        model.save(given.save)
    return history.history


if __name__ == "__main__":
    main()
