"""The text that stays."""

from typing import Any

from tests.dashboard.runs import frames_of_a_run, frames_of_an_evaluation
from tests.telemetry.by_hand import step_of
from tnt_notebook.dashboard import summary
from tnt_notebook.telemetry import Breakdown
from tnt_notebook.telemetry.step_trace import Box


def test_a_finished_fit():
    text = summary("MLP on digits", 2, frames_of_a_run(), "finished")
    assert text == (
        "MLP on digits · finished in 0:08 · 3 epochs on 2 ranks\n"
        "\n"
        "  loss        0.01667    validation 0.008333\n"
        "  accuracy     0.9836    validation   0.4918\n"
        "\n"
        "              samples/s while training        samples\n"
        "  each rank                        274          1,920\n"
        "        all                        549          3,840\n"
        "\n"
        "  over the whole fit 452 samples/s: 57 steps 5.7 s, 3 first steps of epochs\n"
        "  1.3 s, outside of steps (validation, callbacks, start) 1.5 s"
    )


def last_words(lines: int, *run: Any, **how: Any) -> list[list[str]]:
    text = summary("MLP", run[0], frames_of_a_run(*run, **how), "finished")
    text = text[: text.index("\n\n  over the whole fit")]
    return [line.split() for line in text.splitlines()[-lines:]]


def test_ranks_have_lines_where_they_differ():
    head, *ranks = last_words(4, 2, uneven=3)
    assert head == ["samples/s", "while", "training", "samples"]
    assert ranks == [
        ["rank", "0", "300", "2,100"], ["rank", "1", "274", "1,920"], ["all", "574", "4,020"],
    ]  # fmt: skip


def test_of_many_ranks_the_slowest_and_the_fastest_are_named():
    text = summary("MLP", 4, frames_of_a_run(4, sharing=2), "finished")
    assert "  over the whole fit 452 samples/s: 57 steps" in text  # of 549 while training
    head, slowest, _, fastest, whole = last_words(5, 64, uneven=3)
    assert "slowest" in "".join(head)
    assert (slowest[2], fastest[:3]) == ("274", ["rank", "0", "300"])
    assert whole == ["all", "17,580", "123,060"]


def test_a_sample_that_went_through_a_pipeline_counts_once():
    assert last_words(2, 4, sharing=2) == [
        ["each", "pipeline", "274", "1,920"], ["all", "549", "3,840"],
    ]  # fmt: skip
    head = ["samples/s", "while", "training", "samples"]
    assert last_words(2, 4, sharing=4) == [head, ["274", "1,920"]]


def test_where_a_step_goes_and_what_limits_it():
    of_ranks = (Breakdown(0.001, 0.06, 0.0, 0.0, 0.03, 0.009),) * 2
    lines = summary("MLP", 2, frames_of_a_run(2, breakdown=of_ranks), "finished").splitlines()
    assert lines[-3:] == [
        "  median step 100 ms: input 1%, work 60%, exchange 30%, other 9%",
        "  30% of a step is exchange of gradients that nothing hides: larger batches",
        "  exchange less for each sample.",
    ]


def test_what_ranks_give_up_and_do_for_all():
    frames = frames_of_a_run()
    frames[-1]["exchange"], frames[-1]["input"] = "exchange late", "every rank maps all: shuffle"
    frames[-1]["skipped"] = "1 sample could not be read"
    text = summary("MLP", 2, frames, "finished")
    notes = ("exchange late", "every rank maps all: shuffle", "1 sample could not be read")
    assert "\n\n  {}\n  {}\n  {}\n\n".format(*notes) in text


def test_what_the_median_step_shows_and_what_a_run_needs():
    frames = frames_of_a_run(2, breakdown=(Breakdown(0.0, 0.09, 0.0, 0.0, 0.01, 0.0),) * 2)
    made = Box(0, "C", 0, 0, 0, 6), Box(0, "X", 0, 0, 5, 9), Box(1, "C", 0, 0, 0, 9)
    frames[-1]["step_trace"] = step_of(*made, pipeline=1)
    frames[-2]["memory"], frames[-1]["memory"] = [300, 512], [200, 400]
    frames[-1]["flops"], frames[-1]["energy"] = 1e9, 1234.0
    lines = summary("MLP", 2, frames, "finished").splitlines()
    assert lines[-2] == "  25% of its exchange was hidden behind work"
    assert lines[-1] == "  a rank needs up to 512 MB; 549 GFLOP/s of the model; 1.23 kJ"


def test_why_a_pipeline_was_idle():
    of_ranks = (Breakdown(0.0, 0.09, 0.01, 0.0, 0.0, 0.0),) * 2
    frames = frames_of_a_run(2, sharing=2, breakdown=of_ranks)
    frames[-1]["step_trace"] = step_of(
        Box(0, "D", 0, 0, 0, 1), Box(0, "F", 0, 0, 1, 2), Box(0, "R", 1, 0, 2, 4),
        Box(0, "B", 0, 0, 4, 6), Box(1, "F", 1, 0, 2, 3), Box(1, "B", 1, 0, 3, 5),
        schedule="1f1b", formula=0.5,
    )  # fmt: skip
    lines = summary("MLP", 2, frames, "finished").splitlines()
    # Of 5 s rank 0 waits for 2, and rank 1 is idle for the first and the last one.
    expected = "  it was idle for 40%, by the formula 50%: fill 10%, drain 10%, wait 20%"
    assert expected in lines


def test_a_failure_is_told_in_full():
    error = "rank 1 raised ValueError: no data\nthe others were freed"
    calls = "rank 1:\nCell In[1], line 2"
    first, _, *lines = summary("MLP", 2, [], "failed", error, calls).splitlines()
    assert first == "MLP · failed after 0:00 · 2 ranks"
    assert lines == [
        "  rank 1 raised ValueError: no data", "  the others were freed", "",
        "  rank 1:", "  Cell In[1], line 2",
    ]  # fmt: skip


def test_a_stopped_run_shows_what_it_had():
    text = summary("MLP", 1, frames_of_a_run(1, until=10, state="stopped"), "stopped")
    assert text.startswith("MLP · stopped after 0:02 · 1 rank\n")
    assert "loss         0.1000" in text
    above, _ = text.split("\n\n  over the whole ")
    assert "validation" not in above and "all" not in above


def test_an_evaluation_after_the_fit_is_a_line_and_alone_it_is_the_whole():
    frames = [*frames_of_a_run(), *frames_of_an_evaluation()]
    lines = summary("MLP", 2, frames, "finished").splitlines()
    assert lines[0] == "MLP · finished in 0:08 · 3 epochs on 2 ranks"
    assert lines[5] == "  evaluate: loss 0.2500, accuracy 0.7500, 0:02"
    text = summary("MLP", 2, frames_of_an_evaluation(), "finished")
    assert text.startswith("MLP · finished in 0:02 · 2 ranks\n\n  loss         0.2500")
