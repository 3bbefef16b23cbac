"""What an exchange sends, and when: by its name, as far as plans know it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tnt_notebook.choices import split_exchange
from tnt_notebook.errors import ModelError
from tnt_notebook.plan.buckets import CAP_MB
from tnt_notebook.plan.sharing import SHARDED, is_sharded

_LATE = "late"
#: Those that plans know: others change how many bytes there are, or who gets them.
PLANNED = ("allreduce", SHARDED, _LATE)
#: Bytes of a number of a gradient, and of what it may travel as.
_OWN_BYTES, WIRE_BYTES = 4, {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Traffic:
    """What ranks do to add up gradients.

    Attributes:
        part: bytes that travel for each byte of a gradient.
        bucket_mb: size of a bucket in MiB.
        on_owners: whether a gradient is added up on the owner of its weight alone, which gives the
            others the new weight in the end: a reduce-scatter and, with nothing behind which it
            could go on, an allgather, each half of an allreduce.
        late: by how many steps gradients are applied later, which are added up beside the next
            step; a rank keeps them meanwhile.
    """

    part: float = 1.0
    bucket_mb: float = CAP_MB
    on_owners: bool = False
    late: int = 0


#: Of an allreduce.
USUAL = Traffic()


def is_planned(exchange: str) -> bool:
    """Whether plans know an exchange, by its name and its options."""
    return split_exchange(exchange)[0] in PLANNED


@functools.cache  # a search asks for that of each way
def traffic_of(exchange: str) -> Traffic:
    """That of an exchange. Raises ModelError where plans do not know it.

    Args:
        exchange: as it is typed: ``late:wire=bfloat16``; empty: an allreduce as usual.
    """
    name, options = split_exchange(exchange or PLANNED[0])
    if name not in PLANNED:
        raise ModelError(
            f"Plans do not know what the exchange {name} takes, but only {', '.join(PLANNED)}."
        )
    wire = options.get("wire")
    try:
        return Traffic(
            WIRE_BYTES[wire] / _OWN_BYTES if wire else 1.0,
            float(options.get("bucket_mb") or CAP_MB),
            is_sharded(exchange),
            int(options.get("steps") or 1) if name == _LATE else 0,
        )
    except (KeyError, ValueError):
        raise ModelError(f"There is no exchange {exchange!r}: an option cannot be so.") from None


def with_buckets(exchange: str, bucket_mb: float) -> str:
    """An exchange with buckets of another size, as it is typed."""
    return f"{exchange or PLANNED[0]}:bucket_mb={bucket_mb:g}"
