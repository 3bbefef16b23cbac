"""What it costs to see: steps with the trace and frames twice a second, beside steps without."""

import os
from collections.abc import Callable

from tests.benchmarks.contestants import OPEN_MPI, commands
from tests.benchmarks.fits import epochs, mlp, samples
from tests.benchmarks.job import Job
from tests.benchmarks.rounds import interleaved
from tests.benchmarks.seat import Seat

ROUNDS, SECONDS, STEPS = 21, 40.0, 100

#: Name, ranks, and stages.
CASES = [("one rank", 1, 1), ("two ranks", 2, 1), ("a pipeline of two", 2, 2)]


def rank(seat: Seat, stages: str) -> None:
    """Trains an epoch when it is asked to, or says how many frames had a trace of a step."""
    import keras

    import tnt_notebook as tnt
    from tnt_notebook.telemetry import Frame

    frames: list[Frame] = []
    data = samples(STEPS * 64)

    def fitted(traced: bool) -> Callable[[], float]:
        os.environ["TNT_TRACE"] = "1" if traced else "0"  # read when a step is traced
        model = mlp(keras, 512, 512, 512, 512)
        cut = tnt.Pipeline(2, 4, cut_at=[model.layers[2].name]) if stages == "2" else None
        made = tnt.Model(model, pipeline=cut)
        made._session.report = frames.append if traced else None
        epoch = epochs(keras, made, *data, batch_size=64, shuffle=False)
        epoch()
        return epoch

    turns = {traced: fitted(traced) for traced in (True, False)}

    def answer(traced: bool | None) -> float:
        seen = sum("step_trace" in frame for frame in frames)
        return seen if traced is None else turns[traced]()

    seat.serve(answer)


def measure(name: str, ranks: int, stages: int) -> str:
    """One line: the ratio of step times."""
    with Job(ranks, commands(OPEN_MPI, ranks, "telemetry:rank", str(stages))) as job:

        def epoch(traced: bool) -> float:
            return max(job.ask(traced=traced))

        ratio = interleaved(lambda: epoch(True), lambda: epoch(False), ROUNDS, SECONDS)
        if not any(job.ask(traced=None)):
            raise RuntimeError("nothing was seen")
    return (
        f"a step on {name}, with the trace / without: {ratio.sentence(4)}; "
        f"{1e3 * ratio.b_seconds / STEPS:.2f} ms without"
    )


if __name__ == "__main__":
    for case in CASES:
        print(measure(*case), flush=True)
