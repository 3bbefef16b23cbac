"""Channels: numbers that keep apart exchanges that are under way at once.

The ranks trace the same ops in the same order, and count their channels in the same range; so they
agree on them without talking. Ranges lie end to end, in the order of the table.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tnt_notebook.errors import CommunicationError

#: What the backend has: MPI guarantees tags up to 32767.
COUNT = 32_000


@dataclass(frozen=True)
class Range:
    """Channels that follow each other.

    Attributes:
        use: what goes over them.
        remedy: what to do where they are not enough, a sentence.
        first: the lowest one.
        count: how many there are.
    """

    use: str
    remedy: str
    first: int
    count: int

    def __getitem__(self, number: int) -> int:
        """A channel.

        Raises:
            CommunicationError: the range has fewer.
        """
        if not 0 <= number < self.count:
            raise CommunicationError(
                f"The {self.count} channels for {self.use} ({self.first} to "
                f"{self.first + self.count - 1}) are exhausted: number {number + 1} was asked for."
                f" {self.remedy}".rstrip()
            )
        return self.first + number

    def only(self, number: int) -> Range:
        """The range of one channel of this one."""
        return Range(self.use, self.remedy, self[number], 1)

    def part(self, number: int, of: int) -> Range:
        """One of so many equal parts."""
        count = self.count // of
        use = f"{self.use}, part {number + 1} of {of}"
        return Range(use, self.remedy, self[number * count], count)


def _end_to_end(*rows: tuple[int, str, str]) -> tuple[Range, ...]:
    begins = itertools.accumulate((count for count, _, _ in rows), initial=0)
    return tuple(Range(*row[1:], begin, row[0]) for row, begin in zip(rows, begins, strict=False))


_LARGER = "Exchange more tensors at a time, for instance in larger buckets."

#: All of them. Training, evaluation and prediction are apart, so that a rank that trains and one
#: that evaluates never mix their messages.
RANGES = (
    EAGER, GRAPH, TRAINING, GRADIENTS, READERS, REPLICAS, EDGES, EVALUATION, PREDICTION,
    TUNING, CONVERSIONS, NORMS, MADE,
) = _end_to_end(
    (1, "the world's calls outside of graphs", ""),
    (1023, "a graph of its own", "Trace fewer exchanges as one function."),
    (3072, "a training step", _LARGER),
    (4096, "the gradients of a pipeline", f"{_LARGER} Or ask for fewer stages."),
    (1, "how many samples a pipeline gets", ""),
    (1536, "what replicas of a stage share",
     "Let layers have less state, or the loss and the metrics fewer sums over the whole batch."),
    (12 * 1024, "values between the stages of a pipeline",
     "Use fewer micro-batches, or cut where fewer layers are connected."),
    (1024, "an evaluation step", _LARGER),
    (928, "a prediction step", "Let the model have fewer outputs."),
    (1, "measurements of allreduce", ""),
    (2048, "conversions inside of the stages of a pipeline",
     "Ask for fewer stages, or for a mesh along which fewer layers are divided."),
    (1024, "norms of gradients of weights that are cut", ""),
    (4958, "groups and buckets", "Make them once and use them again, or restart the cluster."),
)  # fmt: skip
