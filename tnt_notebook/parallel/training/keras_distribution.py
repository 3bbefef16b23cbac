"""How a model is divided that a distribution of Keras is set for.

DeviceMesh(shape=(2, 2), axis_names=("batch", "model"))      ->      Mesh(data=2, model=2)
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from tnt_notebook.errors import MeshError
from tnt_notebook.keras.distribution import Devices, devices_of, layouts_of
from tnt_notebook.parallel.layers.layout_map import ByLayoutMap
from tnt_notebook.plan.mesh import DATA, STAGE, Mesh


@dataclass(frozen=True)
class Division:
    """What a distribution says.

    Attributes:
        mesh: of the ranks; None: all have the whole model, and a part of each batch.
        layouts: of the weights.
        says: the same in words, to compare.
    """

    mesh: Mesh | None
    layouts: ByLayoutMap
    says: tuple[str, ...]


def division_by(distribution: Any, model: keras.Model, rank: int, ranks: int) -> Division:
    """Reads a distribution.

    Args:
        rank, ranks: of this process, and how many there are.

    Raises:
        MeshError: its mesh is not one of all ranks, or something of it cannot be followed.
    """
    devices = devices_of(distribution)
    mesh = mesh_of(devices, ranks)
    assert devices.batch is not None  # a mesh has one
    layouts = ByLayoutMap(distribution, model, devices.batch, mesh, warns=rank == 0)
    says = (
        type(distribution).__name__,
        f"mesh {', '.join(f'{n}={k}' for n, k in devices.axes)} of {', '.join(devices.names)}",
        f"batches by {devices.batch}",
        *(f"{key} {axes}" for key, axes in layouts_of(distribution).items()),
    )
    return Division(mesh if mesh.is_divided else None, layouts, says)


def mesh_of(devices: Devices, ranks: int) -> Mesh:
    """The mesh of ranks that a device mesh describes; its axes may come in another order, so that
    ranks are in theirs.

    Raises:
        MeshError: it has not all ranks, each once and in an order that makes a grid, or axes that
            cannot be.
    """
    names = [name for name, _ in devices.axes]
    if devices.batch not in names:
        raise MeshError(
            f"batch_dim_name={devices.batch!r} is not an axis of the DeviceMesh, which has "
            f"{', '.join(names)}. Batches need one: it may have a size of 1."
        )
    for name in names:
        if names.count(name) > 1 or (name in (DATA, STAGE) and name != devices.batch):
            raise MeshError(
                f"The axis {name!r} of the DeviceMesh cannot be combined with {devices.batch!r}, "
                "which cuts batches: 'data' and 'stage' are reserved, and each name is used once. "
                "Give it another one, such as 'model'."
            )
    numbers = [_rank(name) for name in devices.names]
    if sorted(numbers) != list(range(ranks)):
        raise MeshError(
            f"The DeviceMesh is of {', '.join(devices.names)}, and there are {ranks} ranks: each "
            "is a device of it, once. Take all of keras.distribution.list_devices()."
        )
    counts = [count for _, count in devices.axes]
    grid = np.reshape(numbers, counts)
    for order in itertools.permutations(range(len(counts))):
        if np.array_equal(grid.transpose(order).ravel(), range(ranks)):
            renamed = [DATA if name == devices.batch else name for name in names]
            return Mesh(**{renamed[i]: counts[i] for i in order})
    raise MeshError(
        f"The devices {', '.join(devices.names)} are in an order in which they form no grid of "
        f"{' x '.join(map(str, counts))}. Give them as keras.distribution.list_devices() does."
    )


def _rank(device: str) -> int:
    match = re.fullmatch(r"(?:cpu|gpu|tpu):(\d+)", device)
    return int(match[1]) if match else -1
