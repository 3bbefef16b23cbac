"""What to expect of a model on a mesh before it runs, layer by layer, as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tnt_notebook.plan.mesh import Mesh
from tnt_notebook.plan.network import Link


@dataclass(frozen=True)
class ConversionPlan:
    """A step from the layout of a value to that in which it is taken.

    Attributes:
        what: "sum", "reduce-scatter", "gather", "slice", "halo exchange" or "all-to-all"; or "sum
            inside", of what ranks compute in parts and give whole.
        axes: of the mesh, along which ranks exchange.
        there_bytes, back_bytes: that a rank sends at most: of the value, and of its gradient.
    """

    what: str
    axes: tuple[str, ...]
    there_bytes: int
    back_bytes: int


@dataclass(frozen=True)
class LayerPlan:
    """A call of a layer, and what is expected of it.

    Attributes:
        name, kind: of the layer: its name and its class.
        ways: by axis of the mesh, how its work is divided along it.
        layout: of what it gives, in words.
        conversions: of what it takes, and sums inside of it; of values that an earlier layer has
            taken so, none.
        alone_s: seconds of its forward and backward with the whole batch on one rank.
        work_s, conversions_s: on each rank of the mesh: of the layer, and of its conversions.
        weights, activations: bytes of a rank: of weights, gradients and what the optimizer keeps;
            and of what is kept for backward.
        summed: bytes of a rank, of gradients that ranks add up which divide the layer.
        whole: why all ranks do the same; empty where its work is divided.
    """

    name: str
    kind: str
    ways: Mapping[str, str]
    layout: str
    conversions: tuple[ConversionPlan, ...]
    alone_s: float
    work_s: float
    conversions_s: float
    weights: int
    activations: int
    whole: str
    summed: int = 0

    @property
    def mesh_s(self) -> float:
        """Seconds on each rank of the mesh, with conversions."""
        return self.work_s + self.conversions_s


@dataclass(frozen=True)
class MeshPlan:
    """What to expect of a training step on a mesh.

    Attributes:
        mesh: its axes, as they are typed: ``"data=2,height=2"``.
        ranks, replicas: of all, and how many share a batch.
        batch_size, samples: of a batch, and of a replica's share of it.
        layers: all calls of layers, in order.
        outputs: by which what the model gives becomes whole.
        outputs_s: seconds of that.
        inputs, outputs_bytes: bytes of a rank of what the model is given, whole on each; and of
            copies of outputs.
        gradients_s: in which gradients are added up, if nothing hides it.
        alone_bytes: that one rank needs with the whole batch.
        link: what ranks were taken to exchange with.
        link_ranks: among which that was measured; 0: it is assumed.
        memory_limit: bytes that a rank may need; None: there is no limit.
    """

    mesh: str
    ranks: int
    replicas: int
    batch_size: int
    samples: int
    layers: tuple[LayerPlan, ...]
    outputs: tuple[ConversionPlan, ...]
    outputs_s: float
    inputs: int
    outputs_bytes: int
    gradients_s: float
    alone_bytes: int
    link: Link
    link_ranks: int = 0
    memory_limit: int | None = None

    @property
    def inner(self) -> str:
        """The axes along which the work inside of layers is divided, as they are typed."""
        return Mesh.parsed(self.mesh).inner_text

    @property
    def parts(self) -> int:
        """How many ranks divide the work inside of layers."""
        mesh = Mesh.parsed(self.mesh)
        return mesh.along_all(mesh.inner)

    @property
    def work_s(self) -> float:
        """Seconds of a step in which ranks compute."""
        return sum(layer.work_s for layer in self.layers)

    @property
    def conversions_s(self) -> float:
        """Seconds of a step in which values go from layout to layout."""
        return self.outputs_s + sum(layer.conversions_s for layer in self.layers)

    @property
    def step_s(self) -> float:
        """Seconds of a step, in which nothing hides an exchange."""
        return self.work_s + self.conversions_s + self.gradients_s

    @property
    def alone_s(self) -> float:
        """Seconds of a step with the whole batch on one rank."""
        return sum(layer.alone_s for layer in self.layers)

    @property
    def speedup(self) -> float:
        """How many times as fast as one rank."""
        return self.alone_s / self.step_s

    @property
    def samples_per_s(self) -> float:
        """Of all replicas together."""
        return self.batch_size / self.step_s

    @property
    def weights(self) -> int:
        """Bytes of a rank: of weights, gradients and what the optimizer keeps."""
        return sum(layer.weights for layer in self.layers)

    @property
    def activations(self) -> int:
        """Bytes of a rank: of what is kept for backward."""
        return self.inputs + self.outputs_bytes + sum(layer.activations for layer in self.layers)

    @property
    def rank_bytes(self) -> int:
        """Bytes of a rank in all."""
        return self.weights + self.activations

    @property
    def whole(self) -> tuple[LayerPlan, ...]:
        """The layers that all ranks compute alike."""
        return tuple(layer for layer in self.layers if layer.whole)


def as_json(plan: MeshPlan) -> dict[str, Any]:
    """A plan as JSON values."""
    return asdict(plan)


def from_json(data: Mapping[str, Any]) -> MeshPlan:
    """The plan that :func:`as_json` made data of."""

    def conversions(rows: list[dict[str, Any]]) -> tuple[ConversionPlan, ...]:
        return tuple(ConversionPlan(**{**row, "axes": tuple(row["axes"])}) for row in rows)

    layers = [
        LayerPlan(**{**row, "conversions": conversions(row["conversions"])})
        for row in data["layers"]
    ]
    parsed = {
        "layers": tuple(layers),
        "outputs": conversions(data["outputs"]),
        "link": Link(*data["link"]),
    }
    return MeshPlan(**{**data, **parsed})
