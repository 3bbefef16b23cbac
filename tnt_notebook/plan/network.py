"""What messages between ranks are assumed to cost.

Taken for a fast network or the memory of a node, and small beside layers that are worth a pipeline.
"""

from __future__ import annotations

_LATENCY_S, _BYTES_PER_S = 30e-6, 2e9


def message_s(size: int) -> float:
    """Seconds that so many bytes take."""
    return _LATENCY_S + size / _BYTES_PER_S
