"""How torch's ranks find each other. It runs in torch's own Python."""

import torch

from tests.benchmarks.seat import Seat


def join(seat: Seat) -> None:
    """Makes them a process group over gloo, through a file that all of them see."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=(seat.folder / "gloo").as_uri(), rank=seat.rank, world_size=seat.ranks
    )
