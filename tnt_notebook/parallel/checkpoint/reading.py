"""Checkpoints in a folder, as snapshots; broken ones are found out, and named."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tnt_notebook.comm import World
from tnt_notebook.parallel.checkpoint import files, folder
from tnt_notebook.parallel.checkpoint.files import MANIFEST, Arrays, Damaged
from tnt_notebook.parallel.checkpoint.snapshot import Place, Snapshot, State
from tnt_notebook.parallel.consistency import agreement


def load(where: Path) -> Snapshot:
    """A checkpoint, whose arrays are read later. Raises Damaged where a file is not what was
    written."""
    manifest = files.read_facts(where / MANIFEST)
    arrays = Arrays(where, dict(enumerate(manifest["shards"])))
    return Snapshot(State.of_json(manifest["state"]), arrays)


def newest(over: World, where: Path) -> tuple[Snapshot | None, dict[int, Snapshot], list[str]]:
    """The newest checkpoint that can be used. Collective: each rank checks a part of each.

    Returns:
        That checkpoint; those at the end of the calls of fit before it; names of others that are
        broken or newer.
    """
    is_good = functools.cache(functools.partial(_agreed, over, where))
    found = agreement.from_rank_0(over, _places(where) if over.rank == 0 else [])
    for name, place in found:
        if place is None:
            is_good(name)  # to name it
    places = sorted(((Place(*place), name) for name, place in found if place), reverse=True)
    ends = {place.fit: name for place, name in places if place.ended}
    for place, name in places:
        before = [ends.get(fit) for fit in range(1, place.fit)]
        if is_good(name) and all(end is not None and is_good(end) for end in before):
            earlier = {fit: load(where / str(end)) for fit, end in enumerate(before, 1)}
            good = {n for p, n in places if p <= place and is_good(n)}
            return load(where / name), earlier, sorted({n for n, _ in found} - good)
    return None, {}, [name for name, _ in found]


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
        digests = files.read_facts(where / name / MANIFEST)["shards"]
        own = range(over.rank, len(digests), over.size)
        for _ in Arrays(where / name, {number: digests[number] for number in own}).values():
            pass
    except (Damaged, OSError) as error:
        problem = f"{error} (rank {over.rank})"
    problems = [found for found in agreement.everyones(over, problem) if found]
    if problems and over.rank == 0:
        print(f"The checkpoint {where / name} is not used: {problems[0]}.")
    return not problems
