"""What ranks must agree on before they train, and afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tnt_notebook.comm import Communicator, World
from tnt_notebook.errors import DisagreementError, DivergenceError
from tnt_notebook.keras.lazy_variables import is_here
from tnt_notebook.parallel.consistency.holders import broadcast_value, holders_of
from tnt_notebook.telemetry import activities


def agree(over: World, facts: dict[str, Any]) -> None:
    """Raises DisagreementError on all ranks if their ``facts`` differ, and says which and where.

    Collective. ``facts["call"]`` says what the rank is about to do; the others are compared too.
    """
    if over.size == 1:
        return
    with activities.during("wait"):
        everyone = everyones(over, facts)
    calls = [theirs.get("call") for theirs in everyone]
    if len(set(calls)) > 1:
        told = ", ".join(f"rank {r}: {call}" for r, call in enumerate(calls))
        raise DisagreementError(
            f"All ranks must make the same calls, in the same order, but now they differ ({told}). "
            "Is fit, evaluate or predict inside an `if` that depends on the rank?"
        )
    reference = everyone[0]
    for rank, theirs in enumerate(everyone):
        for key in reference.keys() | theirs.keys():
            if theirs.get(key) != reference.get(key):
                raise DisagreementError(
                    f"Ranks called {calls[0]} with different arguments: "
                    + _difference(key, reference.get(key), theirs.get(key), rank)
                    + " Make sure that the cell does the same on every rank."
                )


def layout(variables: Sequence[keras.Variable]) -> list[list[Any]]:
    """Shape and dtype of each variable. Names count layers per process, and may differ."""
    return [[list(map(int, v.shape)), str(v.dtype)] for v in variables]


def share_state(over: Communicator, variables: Sequence[keras.Variable]) -> None:
    """Gives all ranks that have a variable the value on rank 0, or on the first that has it."""
    if over.size == 1 or _all_same(over, _checksums(variables)):
        return
    for variable, ranks in zip(variables, holders_of(over, variables), strict=True):
        if len(ranks) > 1:
            broadcast(over, variable, ranks[0])


def broadcast(over: Communicator, variable: keras.Variable, root: int = 0) -> None:
    """Gives all ranks that have a variable its value on rank ``root``. Collective."""
    value = broadcast_value(over, variable, root)
    if is_here(variable):
        variable.value.assign(value)


def from_rank_0(over: Communicator, value: Any) -> Any:
    """A JSON value of rank 0, on all ranks; arrays may be in it."""
    message = over.broadcast_bytes(json.dumps(value, default=_as_json).encode())
    return json.loads(message, object_hook=_array)


#: By which an array is known in JSON.
_ARRAY = "tnt_array_of"


def _as_json(value: Any) -> Any:
    """What JSON has no word for: numbers of NumPy and TensorFlow, and arrays of them."""
    if np.ndim(value) == 0:
        return float(value)
    array = np.asarray(value)
    return {_ARRAY: array.dtype.str, "values": array.tolist()}


def _array(found: dict[str, Any]) -> Any:
    return np.array(found["values"], found[_ARRAY]) if _ARRAY in found else found


def everyones(over: Communicator, value: Any) -> list[Any]:
    """A JSON value of each rank, on all ranks."""
    return [json.loads(b) for b in over.allgather_bytes(json.dumps(value).encode())]


def check_identical(over: Communicator, variables: Sequence[keras.Variable], when: str) -> None:
    """Compares checksums. Where a variable differs, DivergenceError on all ranks names the first
    one, and the ranks."""
    if over.size == 1:
        return
    own = _checksums(variables)
    if _all_same(over, own):
        return
    everyone = everyones(over, own)
    for variable, sums in zip(variables, zip(*everyone, strict=True), strict=True):
        having = [rank for rank, theirs in enumerate(sums) if theirs]
        odd = [rank for rank in having if sums[rank] != sums[having[0]]]
        if odd:
            raise DivergenceError(
                f"{variable.path} is not the same on rank(s) {odd} as on rank {having[0]} {when}. "
                "Something other than the optimizer changes it: a callback, or code that depends "
                "on the rank."
            )


def _checksums(variables: Sequence[keras.Variable]) -> list[str]:
    """A hash of the bytes of each variable; empty where it is not here."""
    return [
        hashlib.blake2b(np.ascontiguousarray(v.value).tobytes(), digest_size=8).hexdigest()
        if is_here(v)
        else ""
        for v in variables
    ]


def _all_same(over: Communicator, checksums: list[str]) -> bool:
    whole = hashlib.sha256("".join(checksums).encode()).digest()
    return len(set(over.allgather_bytes(whole))) == 1


def _difference(key: str, ours: Any, theirs: Any, rank: int) -> str:
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return f"rank 0 has {len(ours)} {key}, rank {rank} has {len(theirs)}."
        i = next(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
        return f"{key}: number {i} is {ours[i]} on rank 0, and {theirs[i]} on rank {rank}."
    return f"{key} is {ours!r} on rank 0, and {theirs!r} on rank {rank}."
