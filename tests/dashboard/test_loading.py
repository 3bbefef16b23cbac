"""What ``%tnt_bench input`` says of what it measured, and its figure."""

import json
from typing import Any

import pytest

from tnt_notebook.dashboard.reports.loading import InputBench, own_verdict
from tnt_notebook.magics.bench_input import input_bundle, own_bundle


def row(name: str, storage: str, calls: int, rate: float, limit: str, ahead: int = 2) -> dict:
    return {
        "format": name, "storage": storage, "calls": calls, "prefetch": ahead,
        "samples_per_s": rate, "bytes_per_s": 5e3 * rate, "rank_samples_per_s": [rate / 8] * 8,
        "busy": 0.5, "waiting": 0.5, "limit": limit,
    }  # fmt: skip


def a_bench(need: float | None = 8000.0, staged: float = 9000.0, **more: Any) -> InputBench:
    """JPEG from a slow storage, where calls help; and what would be faster."""
    rows = [
        row("synthetic", "memory", 1, 2e5, "cpu"),
        row("jpeg", "local", 1, staged / 2, "calls"), row("jpeg", "local", 16, staged, "cpu"),
        row("jpeg", "throttled", 1, 400, "latency"), row("jpeg", "throttled", 16, 3100, "latency"),
        row("jpeg", "throttled", 16, 3000, "latency", ahead=0),
        row("tfrecord", "throttled", 16, 7000, "cpu"),
        {"format": "parquet", "missing": "needs pyarrow"},
    ]  # fmt: skip
    about = {"ranks": 8, "nodes": 1, "cores": 16, "latency_s": 1e-3, "bytes_per_s": 1e8,
             "side": 64, "batch": 16, "rows": rows}  # fmt: skip
    return InputBench({**about, **more}, need, "fit consumes")


def test_what_files_feed_what_limits_them_and_what_to_do():
    assert a_bench().verdict == (
        "JPEG from throttled storage feeds 3 of 8 ranks: 3,100 samples/s, where fit consumes "
        "8,000, with 16 parallel calls (7.8 times as many as with 1). The latency of the storage "
        "limits it: stage the files, tnt.data.staged(...), which feeds 8."
    )
    assert a_bench(need=3000).verdict == (
        "JPEG from throttled storage feeds 8 of 8 ranks: 3,100 samples/s with 16 parallel calls "
        "(7.8 times as many as with 1), and fit consumes 3,000. Input does not limit training."
    )
    # Without a need it is how many times as many; of what does not feed all, the fastest.
    assert a_bench(need=None, staged=3200).verdict.endswith(
        ": write TFRecord, which delivers 2.3 times as many."
    )
    assert a_bench(rows=a_bench().rows[3:4]).verdict.endswith(
        "more parallel calls, or a faster storage."
    )
    assert a_bench(rows=[]).verdict == "Nothing was measured."


def test_the_table_has_a_line_for_each_format_and_says_what_is_missing():
    lines = input_bundle(a_bench())["text/plain"].splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("format"))
    assert "16 calls" in lines[head] and "prefetch 0" in lines[head] and "feeds" in lines[head]
    slow = next(line for line in lines if line.startswith("JPEG       throttled"))
    assert slow.split()[3:9] == ["400", "3,100*", "3,000", "15.5", "1.94", "3"]
    assert slow.endswith("of 8  storage: latency")
    assert any(line.startswith("Parquet ") and line.endswith("needs pyarrow") for line in lines)
    assert "feeds" not in input_bundle(a_bench(need=None))["text/plain"].split("JPEG from")[0]


def test_the_figure_has_a_dot_for_each_loader():
    figure = a_bench().figure
    assert sum(len(t.x) for t in figure.data if t.mode == "markers") == 6
    names = {trace.name for trace in figure.data if trace.showlegend}
    assert names == {"1 parallel call", "16 parallel calls", "synthetic", "what training consumes"}
    assert "storage: latency · feeds 3 ranks" in {a.text for a in figure.layout.annotations}
    assert len(json.dumps(figure.to_plotly_json(), allow_nan=False)) < 50_000
    assert a_bench(need=None).figure.data  # and without what training consumes
    assert a_bench(rows=a_bench().rows[3:4]).figure.data  # and of a single one


def own(**more: Any) -> dict[str, Any]:
    parts = [{"part": "read", "seconds": 1e-3, "share": 0.25},
             {"part": "map", "seconds": 3e-3, "share": 0.75}]  # fmt: skip
    about = {"dataset": "train", "kind": "tf.data", "reading": "", "samples_per_s": 500.0,
             "rank_samples_per_s": [250.0, 250.0], "busy": 0.2, "first_s": 0.1, "calls": 1,
             "parts": parts, "limit": "calls"}  # fmt: skip
    return {**about, **more}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "One call at a time limits it: .map(..., num_parallel_calls=16)."),
        ({"calls": 0}, "options.threading.private_threadpool_size = 16 of tf.data."),
        ({"limit": "cpu"}, "The cores limit it: "),
        ({"limit": "storage"}, "tnt.data.staged(...)."),
        ({"limit": "python"}, "a generator is one thread; read with tf.data."),
        ({"limit": "python", "kind": "PyDataset"}, "give the PyDataset workers"),
        ({"reading": "every rank maps all: from_generator"}, "Every rank maps all: from_generator"),
    ],
)
def test_what_to_do_about_a_dataset_of_ones_own(more, said):
    sentence = own_verdict(own(**more), 2, None, "")
    assert said in sentence and "25% read, 75% map" in sentence
    assert "map, a sample" in own_bundle(own(**more), 2, 900.0, "fit consumes")["text/plain"]


def test_a_dataset_that_is_fast_enough():
    assert own_verdict(own(), 2, 400.0, "fit consumes") == (
        "train delivers 500 samples/s to 2 ranks, and feeds 2 of them: fit consumes 400. Input "
        "does not limit training."
    )
