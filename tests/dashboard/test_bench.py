"""What ``%tnt_bench`` leaves: rows, a verdict, a figure."""

import json

import pytest

from tnt_notebook.comm.tuning.conclude import best_of, fit_of
from tnt_notebook.dashboard.figures.wording import short_time, size, three_digits
from tnt_notebook.dashboard.reports.bench import Bench

KB = 1024
SIZES = [KB * 4**i for i in range(9)]


def a_bench(ranks: int = 4, sizes: list[int] = SIZES, in_use: str = "ring") -> Bench:
    """Times that follow the cost model: `tree` has the lower latency, `ring` the higher rate."""
    models = {"ring": (40e-6, 4e9), "tree": (10e-6, 1e9)}
    entries = []
    for count in sizes:
        times = {name: latency + count / rate for name, (latency, rate) in models.items()}
        for name, seconds in times.items():
            relative = seconds / min(times.values())
            measured = entry(count, seconds, ranks)
            entries.append({"algorithm": name, **measured, "relative": relative})
    of = {name: [e for e in entries if e["algorithm"] == name] for name in models}
    fits = [{"algorithm": name, **fit_of(own)} for name, own in of.items()]
    return Bench(
        {
            "collective": "allreduce", "dtype": "float32", "in_place": False, "rounds": 9,
            "ranks": ranks, "nodes": 1, "links": "shared memory", "entries": entries,
            "limit": [entry(count, 5e-6 + count / 8e9, ranks) for count in sizes],
            "rules": [{"bytes": count, "algorithm": in_use} for count in sizes],
            "fits": fits, "best": best_of(entries),
        }
    )  # fmt: skip


def entry(count: int, seconds: float, ranks: int) -> dict:
    return {
        "bytes": count,
        "median_s": seconds,
        "low_s": 0.9 * seconds,
        "high_s": 1.2 * seconds,
        "bus_bytes_per_s": 2 * (ranks - 1) / ranks * count / seconds,
    }


def test_the_verdict_names_the_fastest_by_size_and_the_loss():
    bench = a_bench()
    assert bench.algorithms == ["ring", "tree"] and bench.sizes == SIZES
    assert bench.verdict == (
        "Within 5% of the fastest: tree up to 32 KB, ring beyond. "
        "The rules in use lose most at 1 KB, where ring takes 3.7 times as long as tree."
    )


def test_good_rules_and_rules_that_were_not_measured_are_told_as_such():
    good = a_bench(sizes=SIZES[:2], in_use="tree")
    assert good.verdict == (
        "Within 5% of the fastest: tree for all sizes. The rules in use are within 10% of that."
    )
    assert a_bench(in_use="direct").verdict.endswith("What the rules in use take was not measured.")


def test_what_is_marked_as_the_fastest_has_the_shortest_time_shown():
    bench = a_bench(sizes=SIZES[:2])
    assert bench.clearly_fastest_at(KB) == "tree"
    bench.row("tree", KB)["median_s"] = 1.0  # the rounds of the others were the quiet ones
    assert bench.fastest_at(KB)["algorithm"] == "tree"
    assert bench.clearly_fastest_at(KB) is None


def test_it_shows_as_one_line():
    assert repr(a_bench()) == (
        "<allreduce of float32 on 4 ranks by shared memory: median of 9 rounds; "
        "9 sizes, 2 algorithms>"
    )


def test_the_figure_has_a_line_and_a_fit_for_each_algorithm():
    bench = a_bench()
    figure = bench.figure
    drawn = [trace for trace in figure.data if trace.name == "ring"]
    time, bandwidth = drawn
    assert list(time.x) == SIZES
    assert list(time.y) == pytest.approx([40e-6 + s / 4e9 for s in SIZES], rel=1e-3)
    assert time.error_y.arrayminus[0] == pytest.approx(0.1 * time.y[0], rel=1e-2)
    assert bandwidth.y[-1] == pytest.approx(1.5 * SIZES[-1] / time.y[-1], rel=1e-3)
    assert bandwidth.xaxis != time.xaxis and not bandwidth.showlegend
    fit = next(t for t in figure.data if t.legendgroup == "ring" and t.line.dash == "dot")
    assert fit.y[-1] == pytest.approx(time.y[-1], rel=1e-3)
    assert {axis.type for axis in figure.select_xaxes()} == {"log"}
    assert {axis.type for axis in figure.select_yaxes()} == {"log"}
    assert list(figure.layout.xaxis.ticktext)[:2] == ["1 KB", "16 KB"]


@pytest.mark.parametrize("sizes", [SIZES[:1], SIZES])
def test_the_figure_is_small_and_valid_json(sizes):
    assert len(json.dumps(a_bench(sizes=sizes).figure.to_plotly_json(), allow_nan=False)) < 100_000


def test_sizes_and_times_read_well():
    assert [size(n) for n in (512, 1024, 1 << 20, 3 << 29)] == ["512 B", "1 KB", "1 MB", "1.5 GB"]
    times = [short_time(t) for t in (4.27e-6, 999.4e-6, 0.0025, 1.2)]
    assert times == ["4.27 µs", "999 µs", "2.5 ms", "1.2 s"]
    assert [three_digits(x) for x in (0.0427, 42.71, 1234.4)] == ["0.0427", "42.7", "1,234"]
