"""The ranks of each contestant: they train for a turn, or exchange halos, when asked to."""

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.layouts.tasks import HALOS, STACK_DEPTH, STACK_WIDTH, TASKS
from tests.benchmarks.seat import Seat, timed

#: Exchanges of halos in a run that is timed, one after the other.
HALOS_IN_A_ROW = 20


def mesh(seat: Seat, name: str) -> None:
    """This project: layers divided along an axis of a mesh, on ranks under mpiexec."""
    import keras

    import tnt_notebook as tnt

    task, world = TASKS[name], tnt.world()
    assert world.size == seat.ranks, f"the world has {world.size} ranks"
    layouts = {layer: tnt.Split(**{what: task.axis}) for layer, what in task.layouts}
    divided = tnt.Model(
        task.model(keras), mesh=tnt.Mesh(**{task.axis: seat.ranks}), layouts=layouts or None
    )
    _serve_keras(seat, name, divided, f"tnt_notebook {tnt.__version__}")


def alone(seat: Seat, name: str) -> None:
    """Plain Keras in one process."""
    import keras

    _serve_keras(seat, name, TASKS[name].model(keras), "one process")


def _serve_keras(seat: Seat, name: str, model: Any, about: str) -> None:
    import keras
    import tensorflow as tf

    task, times = TASKS[name], []
    x, y = task.samples(tuple(model.output_shape[1:]))
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(task.batch).cache().repeat()
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: times.append(time.perf_counter())
    )

    def train() -> float:
        """Seconds from the begin of a step to that of the next; 0 where no callback runs."""
        times.clear()
        seat.meet()
        model.fit(data, steps_per_epoch=task.steps + 1, verbose=0, callbacks=[clock])
        return (times[-1] - times[0]) / task.steps if times else 0.0

    seat.serve(train, f"{about}, Keras {keras.__version__}")


def torch(seat: Seat, name: str) -> None:
    """torch in the way of MPI4DL: before each convolution halos are sent and received over gloo, in
    the gradient they are sent back and added; then gradients of weights are summed up."""
    import torch
    from torch import distributed, nn

    from tests.benchmarks.gloo import join

    join(seat)
    task = TASKS[name]
    assert task.layers.__name__ == "stack", f"{name} is not written in torch"
    beside = [(seat.rank - 1, 0, slice(0, 1)), (seat.rank + 1, 1, slice(-1, None))]
    beside = [(peer, end, rows) for peer, end, rows in beside if 0 <= peer < seat.ranks]

    def exchanged(sent: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """By end, what comes from the rank there; all sends and receives are under way at once."""
        came = {end: torch.empty_like(rows) for end, rows in sent.items()}
        work = [
            start(rows[end], peer)
            for peer, end, _ in beside
            for start, rows in ((distributed.irecv, came), (distributed.isend, sent))
        ]
        for one in work:
            one.wait()
        return came

    class Halo(torch.autograd.Function):
        """A row before the block and after it; zeros at the ends of the image."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            came = exchanged({end: x[:, :, rows].contiguous() for _, end, rows in beside})
            nothing = torch.zeros_like(x[:, :, :1])
            return torch.cat([came.get(0, nothing), x, came.get(1, nothing)], 2)

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
            came = exchanged({end: dy[:, :, rows].contiguous() for _, end, rows in beside})
            dx = dy[:, :, 1:-1].clone()
            for _, end, rows in beside:
                dx[:, :, rows] += came[end]
            return dx

    torch.manual_seed(1)
    convolutions = nn.ModuleList(
        nn.Conv2d(STACK_WIDTH, STACK_WIDTH, 3, padding=(0, 1)) for _ in range(STACK_DEPTH)
    )
    weights = list(convolutions.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.001)
    height, width, channels = task.shape
    x, y = torch.randn(2, task.batch, channels, height // seat.ranks, width)

    def step() -> None:
        optimizer.zero_grad()
        value = x
        for convolution in convolutions:
            value = torch.relu(convolution(Halo.apply(value)))
        (nn.functional.mse_loss(value, y) / seat.ranks).backward()
        if seat.ranks > 1:
            flat = torch.cat([weight.grad.flatten() for weight in weights])
            distributed.all_reduce(flat)
            for weight, part in zip(weights, flat.split([w.numel() for w in weights]), strict=True):
                weight.grad.copy_(part.view_as(weight))
        optimizer.step()

    def train() -> float:
        seat.meet()
        step()
        began = time.perf_counter()
        for _ in range(task.steps):
            step()
        return (time.perf_counter() - began) / task.steps

    seat.serve(train, f"torch {torch.__version__}, halos over gloo")


def halo(seat: Seat, way: str) -> None:
    """Exchanges of halos: by the op of this project, or by mpi4py."""
    from mpi4py import MPI

    import tnt_notebook as tnt

    assert tnt.world().size == seat.ranks
    make, puts_block = _by_mpi if way.startswith("sendrecv") else _by_op, way.endswith("block")

    @functools.cache
    def run(name: str) -> Callable[[], object]:
        return make(seat, name, puts_block)

    def exchange(name: str, iterations: int) -> list[float]:
        return timed(seat, lambda: None, run(name), iterations)

    version = MPI.Get_library_version().split(",")[0]
    about = f"mpi4py, {version}" if make is _by_mpi else f"tnt_notebook {tnt.__version__}"
    seat.serve(exchange, about)


def _by_op(seat: Seat, name: str, puts_block: bool) -> Callable[[], object]:
    """The op, in a graph: it gives the block between its halos, as a convolution takes it, or the
    halo alone, of which each of two ranks has one."""
    import tensorflow as tf

    from tnt_notebook.comm import ops
    from tnt_notebook.parallel.layers.boxes import blocks, pieces

    task = HALOS[name]
    size, n = task.block[1] * seat.ranks, task.rows
    own = blocks(size, seat.ranks)
    if puts_block:
        need = [{1: (begin - n, end + n)} for begin, end in own]
    else:
        assert seat.ranks == 2, "a halo alone is one box on two ranks only"
        need = [{1: (own[1][0], own[1][0] + n)}, {1: (own[0][1] - n, own[0][1])}]
    have = [{1: rows} for rows in own]
    found = [(p.source, p.target, p.box) for p in pieces(have, need)]

    @tf.function
    def run(x: tf.Tensor) -> tf.Tensor:
        with ops.channels():
            for _ in range(HALOS_IN_A_ROW):
                y = ops.move(x, found, have[seat.rank], need[seat.rank], label="halo")
                # The next one begins when this one has ended, as from layer to layer.
                with tf.control_dependencies([y]):
                    x = tf.identity(x)
        return y[:, 0]

    x = tf.constant(_block(task.block))
    run(x)  # traces
    return lambda: run(x).numpy()


def _by_mpi(seat: Seat, name: str, puts_block: bool) -> Callable[[], object]:
    """Two calls of Sendrecv, into memory that is there for them; and the block is put between."""
    from mpi4py import MPI

    task = HALOS[name]
    world, n, x = MPI.COMM_WORLD, task.rows, _block(task.block)
    padded = np.zeros((1, task.block[1] + 2 * n, *task.block[2:]), np.float32)
    before = seat.rank - 1 if seat.rank > 0 else MPI.PROC_NULL
    after = seat.rank + 1 if seat.rank + 1 < seat.ranks else MPI.PROC_NULL

    def run() -> None:
        for _ in range(HALOS_IN_A_ROW):
            if puts_block:
                padded[:, n:-n] = x
            world.Sendrecv(x[:, :n], before, recvbuf=padded[:, -n:], source=after)
            world.Sendrecv(x[:, -n:], after, recvbuf=padded[:, :n], source=before)

    return run


def _block(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)
