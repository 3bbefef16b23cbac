"""The runs of one cell, told apart."""

from __future__ import annotations

from tnt_notebook.telemetry import Recorder, main_run, runs


def test_runs_are_told_apart_even_where_one_is_within_another():
    fit, predict = Recorder(1, "fit", start=1.0), Recorder(1, "predict", start=2.0)
    frames = [fit.frame(1.5), predict.frame(2.5), fit.frame(3.0), predict.frame(2.7, "finished")]
    assert runs(frames) == [[frames[0], frames[2]], [frames[1], frames[3]]]


def test_the_main_run_is_the_last_fit_or_else_the_last():
    first, second = Recorder(1, "fit", start=1.0), Recorder(1, "fit", start=2.0)
    after = Recorder(1, "evaluate", start=3.0)
    frames = [first.frame(1.5), second.frame(2.5), after.frame(3.5)]
    assert main_run(frames) == [frames[1]]
    assert main_run(frames[2:]) == [frames[2]]
    assert main_run([]) == []
