"""What a run tells about itself: frames, their recorder, and the analysis that reads them.

Plain data; this room imports no other. Rank 0 feeds a `Recorder` and ships its frames, the notebook
collects them and asks the functions of `analysis` what they say.
"""

from __future__ import annotations

from tnt_notebook.telemetry.analysis import (
    breakdowns,
    duration,
    energy_of,
    epoch_rows,
    final_logs,
    flop_rate,
    limit_of,
    main_run,
    median_samples_per_s,
    median_step,
    median_step_s,
    memory_of,
    promised_step_s,
    rates,
    runs,
    samples_per_s,
    spent,
    steps_seen,
    throughput,
    total_samples,
    whole_run_samples_per_s,
)
from tnt_notebook.telemetry.breakdown import PARTS, Breakdown
from tnt_notebook.telemetry.frame import FRAME_VERSION, Frame, Phase, Row, State, finite_logs
from tnt_notebook.telemetry.recorder import Recorder
from tnt_notebook.telemetry.sampling import thinned
from tnt_notebook.telemetry.step_trace import StepTrace

__all__ = [
    "FRAME_VERSION", "PARTS", "Breakdown", "Frame", "Phase", "Recorder", "Row", "State",
    "StepTrace", "breakdowns", "duration", "energy_of", "epoch_rows", "final_logs",
    "finite_logs", "flop_rate", "limit_of", "main_run", "median_samples_per_s", "median_step",
    "median_step_s", "memory_of", "promised_step_s", "rates", "runs", "samples_per_s", "spent",
    "steps_seen", "thinned", "throughput", "total_samples", "whole_run_samples_per_s",
]  # fmt: skip
