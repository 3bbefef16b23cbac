"""Runs that were kept on disk, without ranks."""

from pathlib import Path
from typing import Any

from tests.dashboard.runs import frames_of_a_run
from tests.dashboard.steps import step_of_a_pipeline
from tnt_notebook.telemetry import Breakdown, Frame, run_writer

STEP = Breakdown(input=0.001, work=0.008, wait=0.002, skew=0.0, exchange=0.002, other=0.0005)


def frames_with_steps(ranks: int = 2, epochs: int = 3, **options: Any) -> list[Frame]:
    """Frames of a fit of 0.1 s a step, each with a step trace of a pipeline on all ranks."""
    frames = frames_of_a_run(ranks, epochs, breakdown=(STEP,) * ranks, sharing=ranks, **options)
    for seed, frame in enumerate(frames):
        step = step_of_a_pipeline(
            ranks=ranks, micro_batches=4, noise=0.3, seed=seed, message=1e-4, around=True
        )
        step["time"] = frame["time"] - step["seconds"]
        frame["step_trace"] = step
    return frames


def keep(frames: list[Frame], title: str = "MLP on digits", close: bool = True) -> Path:
    """Keeps frames as a run; its folder. Without `close`, as when the writer was killed."""
    writer = run_writer.begin(title, len(frames[0]["samples"]))
    for frame in frames:
        writer.write(frame)
    if close:
        writer.close()
    else:
        writer._file.close()
    return writer.folder
