"""What ranks exchange with, measured once and kept for later. Without TensorFlow."""

from __future__ import annotations

import json
from dataclasses import replace

from tnt_notebook.comm import World, tuning
from tnt_notebook.comm.tuning.contestants import chosen
from tnt_notebook.plan import measurements
from tnt_notebook.plan.network import ASSUMED, Link

#: Of an exchange that is measured: its vector, and how often.
_BYTES, _ROUNDS = 1 << 20, 5


def known_link(over: World) -> Link | None:
    """What was measured between these ranks before, as the user of this process knows it."""
    known = measurements.load_numbers("links", key_of_ranks(over), 2) if over.size > 1 else None
    return Link(*known) if known else None


def measured_link(over: World) -> Link | None:
    """Measured now, unless that is known; None: there is one rank. Collective; rank 0 keeps it."""
    if over.size == 1:
        return None
    told = json.dumps(known_link(over) if over.rank == 0 else None)
    known = json.loads(over.broadcast_bytes(told.encode()))
    if known is not None:
        return Link(*known)
    question = tuning.Question(max_bytes=_BYTES, rounds=_ROUNDS)
    algorithm = chosen(over, question, _BYTES)
    (fit,) = tuning.measure(over, replace(question, algorithms=(algorithm,)))["fits"]
    # Of a vector a rank sends nearly twice its bytes, whatever the algorithm.
    sent = 2 * (over.size - 1) / over.size
    rate = sent * fit["bytes_per_s"] if fit["bytes_per_s"] else ASSUMED.bytes_per_s
    link = Link(fit["latency_s"], rate)
    if over.rank == 0:
        measurements.save_numbers("links", key_of_ranks(over), link)
    return link


def key_of_ranks(over: World) -> str:
    """What measurements among ranks are known by: the same where these reach each other in the same
    way."""
    return measurements.key_of(f"{sorted(over.hosts)} {over.node} {over.links.describe()}")
