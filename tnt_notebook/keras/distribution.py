"""``keras.distribution`` on TensorFlow, where a device is a rank.

Keras describes how a model is distributed in classes that are the same for all backends:
DeviceMesh, LayoutMap, DataParallel, ModelParallel. Its backend of TensorFlow names the devices of
one process and does nothing else. Here it names the ranks, and what a script says in those classes
is read:

    cpu:0  cpu:1  cpu:2  cpu:3      rank 0 to 3, ``gpu:0`` to ``gpu:3`` where they have GPUs

Replaced are the functions of Keras's ``backend/tensorflow/distribution_lib.py`` and, to know what
is built inside of it, ``Distribution.scope``. The same from Keras 3.10, whose weights have no
layout of their own and whose LayoutMap looks for its keys in a path, to 3.15, which compares them
with the whole path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
from keras.src.backend.tensorflow import distribution_lib
from keras.src.distribution import distribution_lib as distributions

from tnt_notebook.errors import MeshError
from tnt_notebook.keras.graph import layers_within
from tnt_notebook.keras.replaced import replaced

#: By dimension, the axis of the device mesh that cuts it; None: none does.
Axes = tuple[str | None, ...]

#: What a layer or a weight has that was made in the scope of a distribution.
_MADE_IN = "_tnt_distribution"

_OUTPUT = "/output"


@dataclass(frozen=True)
class Devices:
    """The device mesh of a distribution, as it was given.

    Attributes:
        axes: by name, how many devices there are along each, the last varies fastest.
        names: of the devices, in this order.
        batch: the axis that cuts batches.
    """

    axes: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    batch: str | None


def install(rank: Callable[[], int], size: Callable[[], int]) -> None:
    """From now on, in this process the devices of keras.distribution are the ranks. As long as
    there is one rank, they are what Keras says.

    Args:
        rank, size: of this process, and how many there are.
    """
    own_devices = distribution_lib.list_devices
    if own_devices.__module__ == __name__:
        return

    def list_devices(device_type: str | None = None) -> list[str]:
        own = own_devices(device_type)
        if size() == 1 or not own:
            return list(own)
        kind, _, _ = own[0].partition(":")
        return [f"{kind}:{number}" for number in range(size())]

    def initialize(
        job_addresses: str | None = None,
        num_processes: int | None = None,
        process_id: int | None = None,
    ) -> None:
        wrong = (
            job_addresses is not None
            or num_processes not in (None, size())
            or process_id not in (None, rank())
        )
        if wrong:
            raise MeshError(
                "keras.distribution.initialize: the ranks are connected already, and this is rank "
                f"{rank()} of {size()}. Leave its arguments out, and KERAS_DISTRIBUTION_* unset."
            )

    distribution_lib.list_devices = list_devices
    distribution_lib.get_device_count = lambda device_type=None: len(list_devices(device_type))
    distribution_lib.initialize = initialize
    # All ranks run one program, which is written as for one process that has all devices.
    distribution_lib.num_processes = lambda: 1
    distribution_lib.process_id = lambda: 0
    # Values that a program sees are whole on every rank, whatever their layout.
    distribution_lib.distribute_tensor = lambda tensor, layout: tensor
    own_scope = distributions.Distribution.scope

    @contextlib.contextmanager
    def scope(distribution: Any) -> Iterator[None]:
        def made(init: Any, thing: Any, *arguments: Any, **keywords: Any) -> None:
            init(thing, *arguments, **keywords)
            vars(thing)[_MADE_IN] = distribution

        with (
            own_scope(distribution),
            replaced(keras.Variable, "__init__", made),
            replaced(keras.Layer, "__init__", made),
        ):
            yield

    distributions.Distribution.scope = scope


def distribution_of(model: keras.Model) -> Any | None:
    """The distribution that is set; where none is, that in whose scope the model was built."""
    now = keras.distribution.distribution()
    if now is not None:
        return now
    things = (*layers_within(model), *model.variables)
    return next((vars(thing)[_MADE_IN] for thing in things if _MADE_IN in vars(thing)), None)


@contextlib.contextmanager
def followed() -> Iterator[None]:
    """Inside, Keras's layers leave the layouts of what they give to those who read them here, and
    code that wants to change one itself is refused."""

    refused: list[MeshError] = []

    def refuse(_: Any, tensor: Any, layout: Any) -> Any:
        refused.append(
            MeshError(
                f"keras.distribution.distribute_tensor(..., {layout}) inside of a layer or a "
                "train_step cannot be followed: there a rank has its block of a value alone. Say "
                "it in the LayoutMap, under the path of the layer and '/output'."
            )
        )
        raise refused[0]

    with (
        # The first is what Layer.__call__ knows, the second what all calls end in.
        replaced(distributions, "distribute_tensor", lambda _, outputs, layout: outputs),
        replaced(distribution_lib, "distribute_tensor", refuse),
    ):
        try:
            yield
        except Exception:
            if refused:  # Keras has wrapped it where it builds a model
                raise refused[0] from None
            raise


def devices_of(distribution: Any) -> Devices:
    """Raises MeshError where it cuts batches otherwise than by samples, or says that each rank has
    its part of them already."""
    mesh, batch = distribution.device_mesh, distribution.batch_dim_name
    if type(distribution).__name__ not in ("DataParallel", "ModelParallel"):
        cut = tuple(distribution.get_data_layout((None, None)).axes)
        if cut != (batch, None):
            raise MeshError(
                f"{type(distribution).__name__}.get_data_layout cuts batches by {cut}; on ranks "
                f"only by samples, {(batch, None)}."
            )
    if not getattr(distribution, "_auto_shard_dataset", True):
        raise MeshError(
            f"{type(distribution).__name__}(auto_shard_dataset=False) means that each rank has its "
            "own part of the data. Here all ranks are given the same data, and each reads its part "
            "of every batch: leave the option out."
        )
    axes = zip(map(str, mesh.axis_names), map(int, mesh.shape), strict=True)
    return Devices(tuple(axes), tuple(map(str, mesh.devices.flatten())), batch)


def weight_axes(distribution: Any, variable: keras.Variable) -> Axes:
    """The axes that cut a weight, as many as it has dimensions.

    Raises:
        MeshError: its layout is of another mesh, or has more dimensions.
        ValueError: its path matches several keys of a LayoutMap.
    """
    layout = distribution.get_variable_layout(variable)
    return _axes(distribution, layout, variable.path, len(variable.shape))


def output_path(layer: Any) -> str:
    """Under which a LayoutMap has the layout of what a layer gives."""
    return f"{getattr(layer, 'path', None) or layer.name}{_OUTPUT}"


def output_axes(distribution: Any, path: str, rank: int | None = None) -> Axes | None:
    """The axes that cut what a layer gives; None: that is left open.

    Args:
        path: from :func:`output_path`.
        rank: how many dimensions that has; None: it is not known.

    Raises:
        MeshError, ValueError: as of :func:`weight_axes`.
    """
    layout = distribution.get_tensor_layout(path)
    return None if layout is None else _axes(distribution, layout, path, rank)


def layouts_of(distribution: Any) -> dict[str, Axes]:
    """What a LayoutMap says, by key; empty where there is none."""
    layout_map = getattr(distribution, "_layout_map", None) or {}
    return {key: tuple(layout_map[key].axes) for key in layout_map}


def unmatched(distribution: Any, paths: list[str]) -> list[str]:
    """The keys of its LayoutMap of which none of these paths has a layout."""
    layout_map = getattr(distribution, "_layout_map", None)
    if not layout_map:
        return []
    found = {id(layout_map[path]) for path in paths}
    return [key for key in layout_map if id(layout_map[key]) not in found]


def _axes(distribution: Any, layout: Any, path: str, rank: int | None) -> Axes:
    if not isinstance(layout, keras.distribution.TensorLayout):
        raise MeshError(
            f"The layout of {path} is a {type(layout).__name__}; on TensorFlow it is a "
            "keras.distribution.TensorLayout."
        )
    other, own = layout.device_mesh, distribution.device_mesh
    if other is not None and other is not own and _described(other) != _described(own):
        raise MeshError(f"The layout of {path} is of {other}, and the distribution of {own}.")
    axes = tuple(layout.axes)
    named = [axis for axis in axes if axis is not None]
    if not set(named) <= set(own.axis_names) or len(set(named)) < len(named):
        raise MeshError(
            f"The layout of {path} is {axes}: for each dimension it has an axis of the mesh, once, "
            f"or None; the axes are {', '.join(own.axis_names)}."
        )
    if rank is None:
        return axes
    if len(axes) > rank:
        raise MeshError(f"{path} has {rank} dimensions, and its layout {axes} has {len(axes)}.")
    return axes + (None,) * (rank - len(axes))


def _described(mesh: Any) -> tuple[Any, ...]:
    return tuple(mesh.axis_names), tuple(mesh.shape), tuple(mesh.devices.flatten())
