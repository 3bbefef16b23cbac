"""Checkpoints in a folder, as snapshots; broken ones are found out, and named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tnt_notebook.comm import World
from tnt_notebook.parallel import agreement
from tnt_notebook.parallel.checkpoint import files, folder
from tnt_notebook.parallel.checkpoint.files import MANIFEST, Damaged, Shard
from tnt_notebook.parallel.checkpoint.snapshot import Place, Snapshot, State


class ArraysInFiles(Mapping[str, np.ndarray]):
    """Arrays of all shards of a checkpoint; each is read when it is asked for, and checked.

    Raises:
        Damaged: a file is not what was written.
    """

    def __init__(self, where: Path, digests: list[str]) -> None:
        self._shards: dict[str, Shard] = {}
        for number, digest in enumerate(digests):
            shard = Shard(where, number, digest)
            self._shards.update(dict.fromkeys(shard.names, shard))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._shards[name].read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)


def load(where: Path) -> Snapshot:
    """A checkpoint. Its arrays are read later.

    Raises:
        Damaged: a file is not what was written.
    """
    manifest = files.read_facts(where / MANIFEST)
    arrays = ArraysInFiles(where, manifest["shards"])
    return Snapshot(State.of_json(manifest["state"]), arrays)


def check(where: Path, rank: int = 0, size: int = 1) -> None:
    """Reads all of a checkpoint, or of `size` ranks' equal parts one.

    Raises:
        Damaged: something is not what was written.
    """
    digests = files.read_facts(where / MANIFEST)["shards"]
    for number in range(rank, len(digests), size):
        Shard(where, number, digests[number]).check()


def newest(over: World, where: Path) -> tuple[Snapshot | None, dict[int, Snapshot], list[str]]:
    """The newest checkpoint that can be used. Collective: each rank reads a part of each, to check
    it.

    Returns:
        That checkpoint; those at the end of the calls of fit before it; names of others that are
        broken or newer.
    """
    tried: dict[str, bool] = {}

    def is_good(name: str) -> bool:
        if name not in tried:
            tried[name] = _agreed(over, where, name)
        return tried[name]

    found: list[list[Any]] = []
    if over.rank == 0:
        found = _places(where)
    found = agreement.from_rank_0(over, found)
    places = {name: place and Place(*place) for name, place in found}
    ends = {p.fit: name for name, p in places.items() if p and p.ended}
    for name in [name for name, place in places.items() if place is None]:
        is_good(name)  # to name it
    for name, place in sorted(
        ((n, p) for n, p in places.items() if p), key=lambda item: _age(item[1]), reverse=True
    ):
        before = [ends.get(fit) for fit in range(1, place.fit)]
        if is_good(name) and all(end is not None and is_good(end) for end in before):
            earlier = {fit: load(where / str(end)) for fit, end in enumerate(before, 1)}
            good = {n for n, p in places.items() if p and _age(p) <= _age(place) and is_good(n)}
            return load(where / name), earlier, sorted(places.keys() - good)
    return None, {}, list(places)


def _age(place: Place) -> tuple[int, bool, int]:
    return place.fit, place.ended, place.steps


def _places(where: Path) -> list[list[Any]]:
    result: list[list[Any]] = []
    for name in folder.whole(where):
        try:
            result.append([name, files.read_facts(where / name / MANIFEST)["state"]["place"]])
        except Damaged:
            result.append([name, None])
    return result


def _agreed(over: World, where: Path, name: str) -> bool:
    """Whether all ranks find their part of a checkpoint in order; if not, says what is wrong."""
    problem = None
    try:
        check(where / name, over.rank, over.size)
    except (Damaged, OSError) as error:
        problem = f"{error} (rank {over.rank})"
    problems = [found for found in agreement.everyones(over, problem) if found]
    if problems and over.rank == 0:
        print(f"The checkpoint {where / name} is not used: {problems[0]}.")
    return not problems
