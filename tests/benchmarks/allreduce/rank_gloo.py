"""torch.distributed.all_reduce over gloo, which is always in place."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.benchmarks.allreduce.vectors import serve
from tests.benchmarks.seat import Seat

if __name__ == "__main__":
    seat = Seat(sys.argv[1])  # binds this process before torch starts threads

    import torch
    from torch import distributed

    torch.set_num_threads(1)
    # The ranks find each other through a file beside the controller's socket.
    meeting = Path(sys.argv[1]).with_name("gloo").as_uri()
    distributed.init_process_group(
        "gloo", init_method=meeting, rank=seat.rank, world_size=seat.ranks
    )

    def in_place(count: int) -> tuple:
        vector = torch.zeros(count)
        return vector.numpy(), vector.numpy(), lambda: distributed.all_reduce(vector)

    serve(seat, {"in place": in_place}, f"gloo of torch {torch.__version__}")
