"""Functions that run at once on a rank, and on every rank begin in another order."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence

from tnt_notebook import comm


@contextlib.contextmanager
def at_once(work: Sequence[Callable[[], None]], seed: int) -> Iterator[None]:
    """Each runs in a thread of its own, beside the ``with`` block; if one fails, all ranks do."""
    w, faults = comm.world(), []

    def run(function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:
            faults.append(error)
            w.abort(f"rank {w.rank}: {error}")

    threads = [threading.Thread(target=run, args=(function,)) for function in work]
    random.Random(10 * seed + w.rank).shuffle(threads)
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
