"""What goes over a channel, as it was said when its op was made."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Purpose(Enum):
    """What an exchange is for."""

    CONVERSION = "conversion"
    """A value comes from one layout to another, or a divided layer puts its parts together."""
    OTHER = "other"
    """Gradients, metrics, samples that meet, and all else."""


class Exchange(NamedTuple):
    """What goes over a channel.

    Attributes:
        label: what it is, in words, as in ``halo exchange for conv2d_1``.
        ranks: of a move, those of the world with which this rank exchanges; none: with all of a
            group.
        sent, received: of what it gives and gets, the part that comes to other ranks, and from
            them.
    """

    label: str
    purpose: Purpose = Purpose.OTHER
    ranks: tuple[int, ...] = ()
    sent: float = 1.0
    received: float = 1.0

    @property
    def converts(self) -> bool:
        """Whether it is a conversion."""
        return self.purpose is Purpose.CONVERSION
