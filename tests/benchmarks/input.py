"""An epoch of images, read and decoded: each rank its own part, beside every rank whole batches.

    python -m tests.benchmarks.input --json input.json

No model trains. CPU seconds are those of a rank's process; the one of 8 ranks, which runs alone,
says how the work of a rank falls where there are no cores for so many.
"""

import time
from argparse import Namespace
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np

from tests.benchmarks.contestants import OPEN_MPI, commands
from tests.benchmarks.job import Job
from tests.benchmarks.report import reported, section, three_digits
from tests.benchmarks.rounds import counted, ratio, rotating
from tests.benchmarks.seat import Seat

IMAGES, PIXELS, BATCH = 512, 448, 64
#: Ranks that run, and among how many a batch is divided.
CASES = [(1, 1), (2, 2), (1, 8)]


def rank(seat: Seat, of: str) -> None:
    """Reads an epoch when it is asked to: wall and CPU seconds, and images that it has had."""
    import tensorflow as tf

    from tnt_notebook.parallel.data import Replica, own_part
    from tnt_notebook.parallel.data.shard import shard

    folder = seat.folder / f"images-{seat.rank}"
    files = tf.constant(_written(folder))
    over = Replica(seat.rank, int(of))

    def load(file: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3)
        return tf.image.resize(image, (PIXELS // 4, PIXELS // 4)) / 255

    @cache
    def epoch(whole: bool) -> tf.data.Dataset:
        shuffled = tf.data.Dataset.from_tensor_slices(files).shuffle(IMAGES, seed=1)
        batches = shuffled.map(load, num_parallel_calls=2).batch(BATCH)
        return shard(batches, over) if whole else own_part(batches, over)[0]

    def answer(whole: bool) -> tuple[float, float, int]:
        dataset, had = epoch(whole), 0
        wall, cpu = time.perf_counter(), time.process_time()
        for _, share in dataset:
            had += int(share.local)
        return time.perf_counter() - wall, time.process_time() - cpu, had

    seat.serve(answer)


def _written(folder: Path) -> list[str]:
    """JPEG files: smooth noise, which has as many bytes as a photograph."""
    import tensorflow as tf

    folder.mkdir()
    chance = np.random.default_rng(0)
    for i in range(IMAGES):
        coarse = chance.uniform(0, 255, (PIXELS // 8, PIXELS // 8, 3))
        image = tf.cast(tf.image.resize(coarse, (PIXELS, PIXELS), "bicubic"), tf.int32)
        encoded = tf.io.encode_jpeg(tf.cast(tf.clip_by_value(image, 0, 255), tf.uint8))
        (folder / f"{i}.jpeg").write_bytes(encoded.numpy())
    return [str(folder / f"{i}.jpeg") for i in range(IMAGES)]


def measured(options: Namespace) -> Iterator[tuple[str, dict]]:
    """A row for each number of ranks."""
    rows = [["ranks", "wall, own / whole", "CPU, own / whole", "CPU ms an image, whole"]]
    rounds = 0
    figures: dict[str, dict[str, list]] = {}
    for ranks, of in CASES:
        with Job(ranks, commands(OPEN_MPI, ranks, "input:rank", str(of))) as job:
            turns = {whole: partial(_epoch, job, ranks == of, whole) for whole in (False, True)}
            for begin in turns.values():
                begin()  # files come into memory
            found = rotating(turns, options.rounds, options.seconds)
        own, whole = (list(zip(*found[each], strict=True)) for each in (False, True))
        walls, cpus = ratio(own[0], whole[0]), ratio(own[1], whole[1])
        name = str(ranks) if ranks == of else f"{ranks} of {of}"
        each = three_digits(1e3 * cpus.b_seconds / IMAGES)
        rows.append([name, str(walls), str(cpus), each])
        figures[name] = {"own": list(own), "whole": list(whole)}
        rounds = walls.rounds
    title = f"{IMAGES} JPEG files of {PIXELS} x {PIXELS}, batches of {BATCH}, {counted(rounds)}"
    yield section(title, rows, ["medians and quartiles; 1 / ranks would be ideal"]), figures


def _epoch(job: Job, complete: bool, whole: bool) -> tuple[float, float]:
    """Wall seconds of the last rank, and CPU seconds of each, in the mean."""
    walls, cpus, had = zip(*job.ask(whole=whole), strict=True)
    if complete and sum(had) != IMAGES:
        raise RuntimeError(f"ranks have had {sum(had)} of {IMAGES} images")
    return max(walls), sum(cpus) / len(cpus)


if __name__ == "__main__":
    reported(__doc__, 15, 40, measured)
