"""What ranks measure: on a rank, in frames, and of all ranks together."""

import json
import time
from itertools import pairwise

import pytest

from tests.dashboard.runs import frames_of_a_run
from tnt_notebook.dashboard.figures.meter_words import measured, meters_in_words
from tnt_notebook.dashboard.reports.trace import Trace
from tnt_notebook.errors import TraceError
from tnt_notebook.telemetry import Recorder
from tnt_notebook.telemetry.activities import Activities
from tnt_notebook.telemetry.chrome import chrome_trace
from tnt_notebook.telemetry.codec import decode_frame, encode
from tnt_notebook.telemetry.curves import MOST_POINTS, curves_of, fewer, meters_in, points, said
from tnt_notebook.telemetry.meters import METERS, Readings, Sampler, joined


def sampled(seconds, measures, low=str, ranks=1):
    """A rank that has measured in these seconds, the first of them now."""
    sampler = Sampler(0, ranks, measures, low)
    begin = int(time.time())
    urgent = [sampler.measure(begin + second) for second in seconds]
    return sampler, begin, urgent


def news(rank, **values):
    """Of a rank that has measured in the seconds 101, 102, ..."""
    whole = {letter: [[number] for number in numbers] for letter, numbers in values.items()}
    at = [101 + i for i in range(max(map(len, values.values())))]
    meters = Readings(ranks=[rank], at=at, values=whole)
    return Activities(rank=rank, doing="", begins=[], seconds={}, meters=meters)


def frames_with_meters():
    """Two ranks of one host, which began at 100; 3 s."""
    frames = frames_of_a_run(start=100.0)
    recorder = Recorder(2, start=100.0)
    recorder.activities([news(0, c=[90, 80, 70], m=[500, 600, 700], h=[10, 20, 30]),
                         news(1, c=[50, 60, 70], m=[800, 800, 900])])  # fmt: skip
    frames[5]["meters"] = recorder.frame(103.0)["meters"]
    return frames


def test_a_rank_measures_once_a_second_what_it_can():
    def broken():
        raise OSError

    sampler, begin, _ = sampled(
        (0, 0.4, 1.9, 2), {"c": lambda: 49.6, "g": lambda: None, "n": broken}
    )
    told = sampler.gather()
    assert told == Readings(ranks=[0], at=[begin, begin + 1, begin + 2], values={"c": [[50]] * 3})
    assert sampler.gather() is None


def test_of_a_day_it_measures_as_often_as_can_be_seen_and_in_the_seconds_of_others():
    day = range(86_400)
    first, _, _ = sampled(day, {"c": lambda: 1})
    later, _, _ = sampled(day[700:], {"c": lambda: 1})
    at, other = (sampler.gather()["at"] for sampler in (first, later))
    assert 1500 < len(at) < 3500
    assert at == sorted(set(at)) and set(other[-100:]) == set(at[-100:])
    many, _, _ = sampled(range(600), {"c": lambda: 1}, ranks=1024)
    assert len(many.gather()["at"]) < 40


def test_what_nobody_gathers_is_told_after_some_seconds_and_low_memory_at_once():
    words = iter(["", "", "Host a has 1 GB left.", "Host a has 1 GB left.", ""])
    sampler = Sampler(3, 4, {"m": lambda: 7}, lambda: next(words))
    now = int(time.time())
    assert not sampler.measure(now - 9)
    assert sampler.tell(False)["at"] == [now - 9]
    assert not sampler.measure(now) and sampler.tell(False) is None
    assert sampler.measure(now + 1)
    assert sampler.tell(False)["low"] == ["Host a has 1 GB left."]
    assert not sampler.measure(now + 2) and sampler.tell(False) is None
    assert sampler.measure(now + 3) and "low" not in sampler.tell(False)


def test_a_frame_has_what_all_measured_as_one_table_and_is_read_back():
    (readings,) = frames_with_meters()[5]["meters"]
    assert (readings["ranks"], readings["at"]) == ([0, 1], [101, 102, 103])
    assert readings["values"]["c"] == [[90, 50], [80, 60], [70, 70]]
    assert readings["values"]["h"] == [[10, None], [20, None], [30, None]]
    frame = frames_with_meters()[5]
    assert decode_frame(encode(frame)) == frame
    frame["meters"][0]["values"]["c"][1] = [80]
    with pytest.raises(ValueError, match="'meters' of a frame is broken"):
        decode_frame(encode(frame))


def test_64_ranks_tell_less_than_three_kb_a_second():
    own = [news(rank, c=[97], m=[3120], h=[61], n=[12000])["meters"] for rank in range(64)]
    assert len(json.dumps(joined(own), separators=(",", ":"))) < 1500


def test_curves_take_the_same_twice_and_say_what_is_low_now():
    curves = curves_of([*frames_with_meters(), *frames_with_meters()])
    assert sorted(curves.at) == [101, 102, 103]
    assert [meter.name for meter in meters_in(curves)] == ["cpu", "memory", "host_memory"]
    assert said(curves, METERS["c"]) == 70 and said(curves, METERS["m"]) == 900
    low = {"ranks": [0, 1], "values": {}, "low": ["Host a.", ""]}
    over = {"ranks": [0, 1], "values": {}}
    told = curves_of([{"meters": [{**low, "at": [5]}]}])
    assert told.warning == "Host a."
    assert not curves_of([{"meters": [{**low, "at": [5]}, {**over, "at": [6]}]}]).warning
    assert curves_of([{"meters": [{**low, "at": [5]}, {**over, "at": [4]}]}]).warning


def test_of_many_ranks_the_least_the_median_and_the_most_are_drawn():
    curves = curves_of([{"meters": [joined([news(r, c=[r])["meters"] for r in range(64)])]}])
    assert points(curves, [101], 64) == [(101, {"c": [0, 32, 63]})]
    assert points(curves_of(frames_with_meters()), [102], 2)[0][1]["m"] == [600, 800]


def test_points_are_bounded_and_the_last_is_there():
    some = []
    for second in range(5000):
        some = fewer([*some, (second, {})])
    at = [second for second, _ in some]
    assert MOST_POINTS / 3 < len(at) <= MOST_POINTS
    assert at[0] == 0 and at[-1] == 4999
    assert max(b - a for a, b in pairwise(at)) <= 32


def test_the_export_has_a_counter_for_each_meter_and_rank():
    events = [e for e in chrome_trace(frames_with_meters())["traceEvents"] if e["ph"] == "C"]
    cpu = [(e["pid"], e["ts"], e["args"]["CPU (%)"]) for e in events if e["name"] == "CPU (%)"]
    assert cpu[:2] == [(0, 1e6, 90), (1, 1e6, 50)] and len(cpu) == 6
    assert {e["pid"] for e in events if e["name"] == "host mem. (%)"} == {0}


def test_meters_are_a_table_of_a_row_a_second_and_rank():
    table = Trace(frames_with_meters()).to_pandas("meters")
    assert list(table) == ["time_s", "rank", "cpu", "memory", "host_memory"]
    assert table[table["rank"] == 1].cpu.tolist() == [50, 60, 70]
    assert table.time_s.tolist() == [1, 1, 2, 2, 3, 3]
    assert Trace([]).to_pandas("meters").empty
    with pytest.raises(TraceError, match="'boxes' and 'meters', and not 'spans'"):
        Trace([]).to_pandas("spans")


def test_numbers_have_units_and_a_summary_says_them():
    said = [("%", 96.6), ("MiB", 812), ("MiB", 1240), ("MiB", 64_512), ("kB/s", 340), ("W", 85.2)]
    words = ["97%", "812 MB", "1.2 GB", "63 GB", "340 kB/s", "85 W"]
    assert [measured(unit, number) for unit, number in said] == words
    assert meters_in_words(frames_with_meters()) == "CPU 70%, host mem. up to 30%"
