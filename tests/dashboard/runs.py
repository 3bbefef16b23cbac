"""Frames of runs that never ran, for the tests of what shows them."""

from statistics import fmean

from tnt_notebook.telemetry import Breakdown, Frame, Recorder, State


def frames_of_a_run(
    ranks: int = 2,
    epochs: int = 3,
    *,
    steps: int = 20,
    until: int | None = None,
    state: State = "finished",
    metrics: tuple[str, ...] = ("accuracy",),
    start: float = 0.0,
    sharing: int = 1,
    breakdown: tuple[Breakdown, ...] = (),
    uneven: int = 0,
) -> list[Frame]:
    """Frames of a fit with validation: 0.1 s a step, 32 samples a rank, of rank 0 `uneven` more, a
    frame every other step.

    It ends after `until` steps, if given.
    """
    recorder = Recorder(ranks, "fit", epochs, start=start, sharing=sharing)
    now, frames = start + 1.0, []
    for count in range(min(epochs * steps, until or epochs * steps)):
        epoch, step = count // steps + 1, count % steps + 1
        now += 0.1
        logs = {"loss": 1 / (count + 1), **dict.fromkeys(metrics, 1 - 1 / (count + 2))}
        recorder.step(epoch, step, steps, logs, [32 + uneven, *[32] * (ranks - 1)], now)
        if step == steps:
            now += 0.5
            recorder.epoch_end(epoch, logs | {f"val_{k}": v / 2 for k, v in logs.items()}, now)
        if step % 2 == 0:
            frames.append(recorder.frame(now))
    if breakdown:
        recorder.breakdown(breakdown, fmean(b.step for b in breakdown))
    return [*frames, recorder.frame(now, state)]


def frames_of_an_evaluation(*, start: float = 100.0) -> list[Frame]:
    """Frames of an evaluate of five steps on two ranks, 2 s in all."""
    recorder = Recorder(2, "evaluate", start=start)
    frames = []
    for step in range(1, 6):
        now = start + 0.4 * step
        recorder.step(1, step, 5, {"loss": 0.25, "accuracy": 0.75}, [32, 32], now)
        frames.append(recorder.frame(now))
    return [*frames, recorder.frame(start + 2.0, "finished")]
