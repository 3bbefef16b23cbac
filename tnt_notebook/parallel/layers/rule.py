"""Rules: how the work of a layer can be divided along one axis of the mesh.

A rule gives ways. A way says which dimension of each value that the layer takes is cut, which of
those that it gives, and which of its weights; what is not cut is whole on every rank. Along several
axes a layer has a way each. A rule is a function of a `LayerCall`, and of how many ranks there are
along an axis::

    @tnt.rule(Gain)                             # a layer of a cell, with a factor for each channel
    def gain(layer_call, parts):
        last = len(layer_call.gives[0]) - 1
        for dim in layer_call.divisible(layer_call.gives[0], parts):
            weights = {id(layer_call.layer.gain): 0} if dim == last else {}
            yield tnt.Way(f"dim {dim}", takes=[tnt.Cut(dim)], gives=[dim], weights=weights)

A layer is called on its blocks as on whole values. Where that is not what it would compute of the
whole, the rule has a function that does it, given a `BlockCall`: here for one that subtracts the
mean over channels::

    def without_mean(block_call):
        axes = block_call.axes("channels")           # those of the mesh that cut channels
        if not axes:
            return block_call.plain()
        (value,) = block_call.layer_call.call.takes
        x, channels = block_call.values[value], block_call.layer_call.takes[0][-1]
        return [x - block_call.summed(tf.reduce_sum(x, -1, keepdims=True), axes) / channels]

    @tnt.rule(Centred, run=without_mean)
    def centred(layer_call, parts):
        last = len(layer_call.gives[0]) - 1
        if last in layer_call.divisible(layer_call.gives[0], parts):
            yield tnt.Way("channels", takes=[tnt.Cut(last)], gives=[last])

Weights and values are cut into nearly equal blocks, and gradients come out as those of one process:
those of a weight that is cut belong to its block, all others are added up over the ranks.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator
from tnt_notebook.errors import MeshError
from tnt_notebook.parallel.layer_graph.graph import Call
from tnt_notebook.parallel.layers.activations import is_known
from tnt_notebook.parallel.layers.boxes import Range, blocks
from tnt_notebook.parallel.layers.moves import shared, total
from tnt_notebook.parallel.layers.ranks import MeshRanks

#: In the place of a dimension: what a rank gives is a summand of the whole.
PARTIAL: Literal["partial"] = "partial"
#: In the place of a dimension of a weight: ranks compute the same gradient of all of it.
SAME: Literal["same"] = "same"

#: What a way gives: the dimension that is cut; None: it is whole, and the same on all ranks.
Gives = int | Literal["partial"] | None

#: Names of dimensions by the number of those between samples and channels. An axis of the mesh that
#: has such a name cuts only these.
SPATIAL = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}
SPATIAL_NAMES = frozenset(name for names in SPATIAL.values() for name in names)

#: Of a value, by dimension; None where it is not known.
Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Cut:
    """A dimension of a value that is taken in blocks.

    Attributes:
        rows: of each block, which rows are taken; they may overlap, and go beyond the ends.
            Default: :func:`~.boxes.blocks`.
        around: of other dimensions, where they are not cut, how many rows the layer takes before
            the first one and after the last.
    """

    dim: int
    rows: tuple[Range, ...] | None = None
    around: tuple[tuple[int, Range], ...] = ()


@dataclass(frozen=True)
class Way:
    """One way to divide the work of a layer.

    Attributes:
        name: in a word.
        takes: of each value that the layer takes, how it is cut; None: it is taken whole.
        gives: of each that it gives, the dimension that is cut, :data:`PARTIAL`, or None: it is
            whole, and the same on all ranks.
        weights: by id of the weight, the dimension that is cut, or :data:`SAME`. The gradients of
            all others are added up.
        fill: what stands beyond the ends of rows.
        divides: whether each rank does a part of the work; not where all do the same, beside
            weights that are cut for other calls.
    """

    name: str
    takes: Sequence[Cut | None]
    gives: Sequence[Gives]
    weights: Mapping[int, int | Literal["same"]] = field(default_factory=dict)
    fill: float = 0.0
    divides: bool = True


@dataclass(frozen=True)
class LayerCall:
    """A call of a layer, as rules see it.

    Attributes:
        call: of which ``layer`` is the layer.
        takes, gives: shapes of the values, of masks after the others.
        whole: places of values that are taken whole in any case: sparse inputs of the model.
        can_divide: whether the work can be divided; not if a layer makes sparse values of it, or
            takes those of another one.
    """

    call: Call
    takes: tuple[Shape, ...]
    gives: tuple[Shape, ...]
    whole: frozenset[int] = frozenset()
    can_divide: bool = True

    @property
    def layer(self) -> Any:
        """The layer that is called."""
        return self.call.operation

    @staticmethod
    def divisible(shape: Shape, parts: int) -> list[int]:
        """The dimensions, but that of the samples, of which each of so many ranks has a row."""
        return [dim for dim, size in enumerate(shape) if dim and size and size >= parts]


Ways = Callable[[LayerCall, int], Iterable[Way]]


#: Calls a function that draws random numbers on a tensor, a row for each of this replica's samples.
Draw = Callable[[Callable[[tf.Tensor], tf.Tensor], tf.Tensor], tf.Tensor]


def drawn(draw: Callable[[tf.Tensor], tf.Tensor], whole: tf.Tensor) -> tf.Tensor:
    """The default: in a step that ranks run together, which says what each draws."""
    return draw(whole)


class BlockCall:
    """A call of a layer on this rank's blocks.

    Attributes:
        ways: by axis of the mesh, for those along which work is divided.
        values: by number, what the layer takes, as the ways say.
        by_rank: whether statistics of batch norm are of each replica's own samples, unless its
            layer is synchronized.
        draw: calls what draws random numbers on a value that is whole but for its samples.
    """

    def __init__(
        self,
        layer_call: LayerCall,
        ways: Mapping[str, Way],
        ranks: MeshRanks,
        values: dict[int, tf.Tensor],
        training: bool,
        by_rank: bool = False,
        draw: Draw = drawn,
    ) -> None:
        self._draw = draw
        self.layer_call, self.ways, self.ranks = layer_call, ways, ranks
        self.values, self.training, self.by_rank = values, training, by_rank

    @property
    def layer(self) -> Any:
        """The layer that is called, with this rank's blocks of its weights."""
        return self.layer_call.layer

    def axes(self, name: str) -> list[str]:
        """The axes along which the way has this name."""
        return [axis for axis, way in self.ways.items() if way.name == name]

    def cuts_in_rows(self) -> dict[int, str]:
        """Of the first value, the axes by dimensions that are taken in rows of their own."""
        taken = ((way.takes[0], axis) for axis, way in self.ways.items())
        return {cut.dim: axis for cut, axis in taken if cut is not None and cut.rows}

    def index(self, axis: str) -> int:
        """This rank's place along an axis."""
        return self.ranks.place[axis]

    def rows(self, axis: str, size: int | None) -> Range:
        """This rank's rows of a dimension of that size, which an axis cuts."""
        assert size is not None  # of what is cut it is known
        return blocks(size, self.ranks.mesh.along(axis))[self.index(axis)]

    def group(self, axes: Iterable[str]) -> Communicator:
        """The ranks along some axes."""
        return self.ranks.group(list(axes))

    def total(self, summand: tf.Tensor, axes: Iterable[str], what: str = "product") -> tf.Tensor:
        """The sum over the ranks along some axes, for work that all of them do alike.

        Args:
            what: it is, of this layer, for messages and the view.
        """
        return total(summand, self.group(axes), f"{what} of {self.layer.name}")

    def summed(self, part: tf.Tensor, axes: Iterable[str], what: str = "statistics") -> tf.Tensor:
        """The same for work that they divide: their gradients are added up, too."""
        over, label = self.group(axes), f"{what} of {self.layer.name}"
        return shared(total(part, over, label), over, label)

    def plain(self, **instead: Any) -> list[Any]:
        """What the layer itself makes of the blocks.

        Args:
            instead: attributes that the layer has meanwhile.
        """
        with changed(self.layer, input_spec=None, **instead):
            self.layer_call.call.run(self.values, self.training)
        return [self.values[n] for n in self.layer_call.call.gives]

    def drawn(
        self,
        draw: Callable[[tf.Tensor], tf.Tensor],
        whole: tf.Tensor,
        axes: Iterable[tuple[int, str]],
    ) -> tf.Tensor:
        """This rank's block of what is made of a whole value and of random numbers, those of one
        process: all ranks draw all of them.

        Args:
            whole: of this replica's samples.
            axes: that cut what is made of it, by dimension.
        """
        made, index = self._draw(draw, whole), [slice(None)] * len(whole.shape)
        for dim, axis in axes:
            index[dim] = slice(*self.rows(axis, made.shape[dim]))
        return made[tuple(index)]


@dataclass(frozen=True)
class Rule:
    ways: Ways
    run: Callable[[BlockCall], list[Any]] = BlockCall.plain


_rules: dict[type, Rule] = {}


def rule(
    *kinds: type, run: Callable[[BlockCall], list[Any]] = BlockCall.plain
) -> Callable[[Ways], Ways]:
    """Declares the rule of some classes of layers: a function of a ``LayerCall`` and of how many
    ranks there are along an axis, which gives ways. It holds for classes that inherit their
    ``call``, too; the rule that was declared last counts.

    Args:
        run: computes the call on this rank's blocks; default: the layer itself does.

    Raises:
        TypeError: it is given a function, or nothing.
    """
    if not kinds or any(map(inspect.isfunction, kinds)):
        raise TypeError("tnt.rule takes the classes of layers: @tnt.rule(MyLayer).")

    def declared(ways: Ways) -> Ways:
        for kind in kinds:
            _rules[kind] = Rule(ways, run)
        return ways

    return declared


def rule_of(operation: Any) -> Rule | None:
    """The rule of a layer: of its class, or of one that it inherits ``call`` from."""
    for kind in type(operation).__mro__:
        if kind in _rules:
            inherits = getattr(kind, "call", None) is getattr(type(operation), "call", None)
            return _rules[kind] if inherits else None
    return None


def ways_of(layer_call: LayerCall, axis: str, parts: int) -> list[Way]:
    """All ways to divide a call along an axis: where the name of the axis is that of a dimension,
    this one is cut. Empty if there is none."""
    found, layer = rule_of(layer_call.layer), layer_call.layer
    if found is None or not layer_call.can_divide:
        return []
    if getattr(layer, "activity_regularizer", None) is not None:
        return []
    if not is_known(getattr(layer, "activation", None)):
        return []  # a function of one's own may look at everything
    result = []
    for way in found.ways(layer_call, parts):
        _check(layer_call, way, parts)
        cut = _cut_by(layer_call, way)
        named = bool(cut) and all(name_of(len(shape), dim) == axis for shape, dim in cut)
        sizes_known = all(shape[dim] for shape, dim in cut)
        fits = sizes_known and all(way.takes[place] is None for place in layer_call.whole)
        if fits and (axis not in SPATIAL_NAMES or named) and _cuts_apart(layer, way):
            result.append(way)
    return result


def _check(layer_call: LayerCall, way: Way, parts: int) -> None:
    """Raises MeshError if a way is none of this call."""
    layer = layer_call.layer
    weights = {id(v): v for v in getattr(layer, "variables", ())}
    values = [("takes", layer_call.takes, way.takes), ("gives", layer_call.gives, way.gives)]
    for does, shapes, said in values:
        if len(shapes) != len(said):
            raise _wrong(layer, way, f"of {len(said)} values that it {does}: it {does} {shapes}")
    for shape, dim in _cut_by(layer_call, way):
        if not 0 < dim < len(shape):
            why = "that of the samples, which the axis data cuts" if dim == 0 else "not there"
            raise _wrong(layer, way, f"that cuts dimension {dim} of {shape}, which is {why}")
    for cut in way.takes:
        if cut is not None and cut.rows is not None and len(cut.rows) != parts:
            raise _wrong(layer, way, f"with rows of {len(cut.rows)} ranks, and there are {parts}")
    for which, where in way.weights.items():
        if which not in weights:
            raise _wrong(layer, way, "of a weight that it does not have: they are named by id()")
        if where != SAME and where not in range(len(weights[which].shape)):
            path, shape = weights[which].path, tuple(weights[which].shape)
            raise _wrong(layer, way, f"that cuts dimension {where} of {path}, which has {shape}")


def _wrong(layer: Any, way: Way, what: str) -> MeshError:
    kind = type(layer).__name__
    return MeshError(f"The rule of {kind} has for {layer.name} the way {way.name!r} {what}.")


def _cuts_apart(layer: Any, way: Way) -> bool:
    """Whether what regularizes or constrains the weights that a way cuts looks at each number by
    itself, or sums up what it makes of each."""
    cut = [v for v in getattr(layer, "variables", ()) if isinstance(way.weights.get(id(v)), int)]
    return all(type(v.regularizer) in _SUMS and type(v.constraint) in _OF_EACH_NUMBER for v in cut)


def _cut_by(layer_call: LayerCall, way: Way) -> list[tuple[Shape, int]]:
    """The dimensions that a way cuts, of values of these shapes."""
    given = zip(layer_call.gives, way.gives, strict=True)
    taken = zip(layer_call.takes, (cut and cut.dim for cut in way.takes), strict=True)
    return [(shape, dim) for shape, dim in (*given, *taken) if isinstance(dim, int)]


def name_of(rank: int, dim: int) -> str:
    """The name of a dimension, channels last."""
    if dim == rank - 1:
        return "channels"
    names = SPATIAL.get(rank - 2, ())
    return names[dim - 1] if 0 < dim <= len(names) else str(dim)


@contextlib.contextmanager
def changed(thing: Any, **attributes: Any) -> Iterator[None]:
    """Inside, it has other attributes."""
    before = {name: getattr(thing, name) for name in attributes if hasattr(thing, name)}
    for name in before:
        setattr(thing, name, attributes[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(thing, name, value)


_SUMS = (type(None), keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
_OF_EACH_NUMBER = (type(None), keras.constraints.NonNeg)
