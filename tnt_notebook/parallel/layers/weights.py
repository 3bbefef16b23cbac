"""The weights of a model on a mesh without stages: gradients are added up over the replicas, and
over the axes along which ranks use the same of a weight for different parts of the work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import keras

from tnt_notebook.comm import Communicator, channels, ops
from tnt_notebook.keras.absent import is_lazy
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.parallel.layers.program import Program
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.weight_blocks import WeightBlocks
from tnt_notebook.parallel.parted import seen_as_a_whole
from tnt_notebook.parallel.pipeline.groups import OverGroups
from tnt_notebook.plan.mesh import DATA


class MeshWeights:
    """The weights of a model whose layers are divided. Made on all ranks at once.

    Args:
        before: whose blocks stay where they are.

    Attributes:
        blocks: of the weights that are cut.
        stay_apart: whether the model stays in blocks after training: with ``tnt.lazy()``.
    """

    def __init__(
        self,
        model: keras.Model,
        program: Program,
        ranks: MeshRanks,
        exchange: Exchange,
        before: MeshWeights | None = None,
    ) -> None:
        self._model, self._ranks = model, ranks
        kept = None if before is None else before.blocks
        self.blocks: WeightBlocks = WeightBlocks(model, program.weights, ranks, kept)
        self.stay_apart = any(map(is_lazy, model.variables))
        self.exchange = OverGroups(exchange, self.groups, self.seen_as_a_whole, scaled=True)

    def part(self) -> None:
        """Leaves to each rank its blocks. Cheap if it is so already. Local, but where variables
        that were built lazily have no values yet."""
        if self.stay_apart:
            self.blocks.create()
        self.blocks.part()

    def gather(self, ranks: Iterable[int] | None = None) -> None:
        """Makes the model whole: on all ranks, or, of one that stays apart, on rank 0 if that is
        said. Collective."""
        if not self.stay_apart:
            self.blocks.join()
        elif ranks is None:
            self.part()  # also where it has been gathered
            self.blocks.set_aside()
        else:
            assert [*ranks] == [0]
            self.blocks.join_on_first()

    def holders(self) -> list[tuple[keras.Variable, list[int]]]:
        """Variables that are whole on some ranks alone, where they are gathered, with these."""
        return [(v, [0]) for v in self.blocks.cut_variables] if self.stay_apart else []

    def groups(
        self, variables: Sequence[keras.Variable]
    ) -> Iterator[tuple[Communicator, list[int], bool]]:
        """The ranks over which gradients are added up, with the places of the variables."""
        chosen: dict[tuple[str, ...], list[int]] = {}
        names = self._ranks.mesh.names
        for i, variable in enumerate(variables):
            summed = self.blocks.layout_of(variable).summed | {DATA}
            chosen.setdefault(tuple(n for n in names if n in summed), []).append(i)
        # Ranks of one line make the same groups, in the same order.
        order = sorted(chosen)
        for number, axes in enumerate(order):
            with ops.channels(channels.GRADIENTS.part(number, max(len(order), 8))):
                yield self._ranks.group(axes), chosen[axes], False

    @contextlib.contextmanager
    def seen_as_a_whole(self, variables: Sequence[keras.Variable]) -> Iterator[None]:
        """Inside, an optimizer that is given the gradients of blocks clips them by the norm of the
        whole, and leaves a step out if any gradient of any rank is not finite."""
        over, model = self._ranks.over, self._model
        with (
            seen_as_a_whole(over, model.optimizer, variables, self.blocks.counts),
            self.blocks.norms_of_whole(variables),
        ):
            yield
