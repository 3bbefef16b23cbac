"""What the calls of a model take and keep, and what runs of them ask of the rank that has them."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from tnt_notebook.plan.layouts import LayerPlan
from tnt_notebook.plan.partition import Wiring
from tnt_notebook.plan.sharing import SMALL_BYTES, owners_of


class Variable(NamedTuple):
    """A weight.

    Attributes:
        elements, bytes: its numbers, and their bytes.
        trained: whether it is.
        part: of it that a rank has, 0 to 1, where ranks divide the work inside of its layer.
        summed: the part of its gradient, 0 to 1, that these ranks add up; the rest replicas alone
            do.
    """

    elements: int
    bytes: int
    trained: bool = True
    part: float = 1.0
    summed: float = 0.0


@dataclass(frozen=True)
class Profile:
    """What a cut is judged by, and a step is predicted from; all times are of a micro-batch.

    Attributes:
        forward, inputs, weights: seconds of each call: its forward, the gradient of what it takes,
            and that of its weights.
        again: seconds of what backward needs of each forward, if that is done again for it.
        transfer: seconds that it takes to bring a value to another rank and its gradient back.
        value_bytes: of each value.
        kept: of each call, the values that its backward needs.
        inner_bytes: of each call, what its backward needs beside them.
        uses: of each call, the variables that it has, as numbers.
        variables: by number.
        slots: bytes of the optimizer's state for a byte of trained weights.
        working: of each call, bytes that its backward makes beside what is kept: gradients of what
            it takes and gives, and what its ops need for themselves.
        recompute: whether activations are computed again rather than kept; see :func:`trained_so`.
        adds_up: whether gradients of micro-batches are added up: then those of one come beside
            their sums.
        owners: ranks that share out the optimizer's state, see :mod:`.sharing`.
    """

    forward: Sequence[float]
    inputs: Sequence[float]
    weights: Sequence[float]
    again: Sequence[float]
    transfer: Mapping[int, float]
    value_bytes: Mapping[int, int]
    kept: Sequence[tuple[int, ...]]
    inner_bytes: Sequence[int]
    uses: Sequence[tuple[int, ...]]
    variables: Sequence[Variable]
    slots: float = 0.0
    working: Sequence[int] = ()
    recompute: bool = False
    adds_up: bool = False
    owners: int = 1

    @functools.cached_property
    def seconds(self) -> list[float]:
        """Forward and backward of each call."""
        return list(map(sum, zip(self.forward, self.inputs, self.weights, strict=True)))

    def state_bytes(self, variable: int) -> int:
        """A variable and what the optimizer keeps for it; of what ranks share out, the mean."""
        v = self.variables[variable]
        owners = self.owners if v.bytes > SMALL_BYTES else 1
        return v.bytes + round(self.slots * v.bytes * v.trained / owners)

    def trained(self, calls: Iterable[int]) -> tuple[int, int]:
        """How many weights of some calls a rank trains, and how many numbers of them; where ranks
        share them out, the one that trains most."""
        used = self._trained(calls)
        numbers = [self.variables[v].elements * self.variables[v].part for v in used]
        if self.owners == 1:
            return len(used), round(sum(numbers))
        owner, _ = self._owners(used)
        everyones = [n for place, n in enumerate(numbers) if place not in owner]
        own: dict[int, list[float]] = defaultdict(list)
        for place, rank in owner.items():
            own[rank].append(numbers[place])
        most = everyones + max(own.values(), key=sum, default=[])
        return len(most), round(sum(most))

    def uneven_bytes(self, calls: Iterable[int]) -> int:
        """What the optimizer of the rank that owns most keeps beyond the mean."""
        if self.owners == 1:
            return 0
        _, load = self._owners(self._trained(calls))
        return round(self.slots * (max(load, default=0) - sum(load) / self.owners))

    def _trained(self, calls: Iterable[int]) -> list[int]:
        used = {v for call in calls for v in self.uses[call] if self.variables[v].trained}
        return sorted(used)

    def _owners(self, used: Sequence[int]) -> tuple[dict[int, int], list[int]]:
        load = [0] * min(self.owners, len(used))  # of more ranks, the others own nothing
        return owners_of([self.variables[v].bytes for v in used], load), load

    def gradient_bytes(self, variable: int) -> int:
        """Its gradient."""
        v = self.variables[variable]
        return v.bytes * v.trained

    def update_bytes(self, call: int) -> int:
        """What the optimizer makes on the way to the new weights of a call, of the largest of them:
        two values of its size."""
        return 2 * max(map(self.gradient_bytes, self.uses[call]), default=0)

    def working_bytes(self, call: int) -> int:
        """What the backward of a call makes beside what is kept."""
        return self.working[call] if self.working else 0

    def summed_bytes(self, variable: int) -> int:
        """What ranks add up of it that divide the work of its layer."""
        return round(self.variables[variable].summed * self.gradient_bytes(variable))


def trained_so(
    profile: Profile, adds_up: bool, recompute: bool, owners: int = 1, late: int = 0
) -> Profile:
    """The same where gradients of micro-batches are added up, and so many ranks share out what the
    optimizer does, or keep gradients for so many steps; and with recomputation for stages that keep
    only what they take, and begin backward with what it needs of forward."""
    inputs = profile.inputs
    if recompute:
        inputs = [again + i for again, i in zip(profile.again, inputs, strict=True)]
    return replace(
        profile, inputs=inputs, recompute=recompute, adds_up=adds_up, owners=owners,
        slots=profile.slots + late,
    )  # fmt: skip


def divided(profile: Profile, layers: Sequence[LayerPlan]) -> Profile:
    """The profile of a rank that has its part of every call, of a mesh along which the work of
    stages is divided. What goes from stage to stage is whole.

    Args:
        layers: of the same calls, with the samples of a micro-batch.
    """
    parts = [
        layer.work_s / seconds if seconds else 1.0
        for layer, seconds in zip(layers, profile.seconds, strict=True)
    ]
    halves = [layer.conversions_s / 2 for layer in layers]  # there; and back
    weight_parts: dict[int, float] = {}
    summed: dict[int, float] = {}
    for uses, layer in zip(profile.uses, layers, strict=True):
        gradients = sum(map(profile.gradient_bytes, uses))
        whole = gradients + sum(map(profile.state_bytes, uses))
        if layer.weights and whole:  # of a layer that is called again it stands at the first call
            weight_parts |= dict.fromkeys(uses, part := layer.weights / whole)
            summed |= dict.fromkeys(uses, layer.summed / (part * gradients) if gradients else 0.0)
    return replace(
        profile,
        forward=[f * p + h for f, p, h in zip(profile.forward, parts, halves, strict=True)],
        inputs=[i * p + h for i, p, h in zip(profile.inputs, parts, halves, strict=True)],
        weights=[w * p for w, p in zip(profile.weights, parts, strict=True)],
        again=[a * p + h for a, p, h in zip(profile.again, parts, halves, strict=True)],
        kept=[() for _ in layers],
        inner_bytes=[layer.activations for layer in layers],
        working=[round(b * p) for b, p in zip(profile.working, parts, strict=True)],
        variables=[
            v._replace(
                bytes=round(v.bytes * weight_parts.get(number, 1.0)),
                part=weight_parts.get(number, 1.0),
                summed=min(1.0, summed.get(number, 0.0)),
            )
            for number, v in enumerate(profile.variables)
        ],
    )


class Load(NamedTuple):
    """What consecutive calls ask of the rank that runs them.

    Attributes:
        seconds: for a micro-batch, with what it takes from other stages.
        state_bytes, gradient_bytes: of their weights and the optimizer's state; of gradients.
        held_bytes: what each micro-batch under way keeps: what its backward needs, or with
            recomputation what the stage takes.
        working_bytes: what is just being done needs beside that.
        update_bytes: what the optimizer needs in the end, when micro-batches need nothing.
    """

    seconds: float
    state_bytes: int
    gradient_bytes: int
    held_bytes: int
    working_bytes: int
    update_bytes: int

    def bytes(self, held: int) -> int:
        """With so many micro-batches under way."""
        weights = self.state_bytes + self.gradient_bytes
        return weights + max(held * self.held_bytes + self.working_bytes, self.update_bytes)


def loads_from(wiring: Wiring, profile: Profile, begin: int) -> Iterator[Load]:
    """Of calls ``begin`` to each later end, the shortest first: with one pass over the calls."""
    made_before = set(wiring.made(0, begin))
    before = made_before | set(wiring.inputs)
    taken: set[int] = set()
    kept: set[int] = set()
    used: set[int] = set()
    seconds, brought = 0.0, 0.0
    state = gradients = activations = held = most = update = 0
    for call in range(begin, len(wiring.calls)):
        takes, keeps = set(wiring.calls[call][0]), set(profile.kept[call])
        if call + 1 == len(wiring.calls):  # the loss takes all outputs
            takes |= set(wiring.outputs)
            keeps |= set(wiring.outputs)
        new = takes & before - taken
        taken |= new
        seconds += profile.seconds[call]
        brought += sum(profile.transfer.get(v, 0.0) for v in new & made_before)
        held += sum(profile.value_bytes.get(v, 0) for v in new)
        fresh = keeps - kept
        kept |= fresh
        activations += profile.inner_bytes[call]
        activations += sum(profile.value_bytes.get(v, 0) for v in fresh)
        variables = set(profile.uses[call]) - used
        used |= variables
        state += sum(map(profile.state_bytes, variables))
        gradients += sum(map(profile.gradient_bytes, variables))
        most = max(most, profile.working_bytes(call))
        update = max(update, profile.update_bytes(call))
        kept_bytes, once = (held, activations) if profile.recompute else (activations, 0)
        working = once + most + profile.adds_up * gradients
        yield Load(seconds + brought, state, gradients, kept_bytes, working, update)


def load_of(wiring: Wiring, profile: Profile, begin: int, end: int) -> Load:
    """What calls ``begin`` to ``end`` (without it) ask for."""
    return next(islice(loads_from(wiring, profile, begin), end - begin - 1, None))
