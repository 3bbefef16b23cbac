"""What a rank does over a run: its log, and all ranks' together."""

import time
from itertools import pairwise

import pytest

from tests.support.waiting import eventually
from tnt_notebook.dashboard.card.time_summary import time_summary
from tnt_notebook.telemetry import activities
from tnt_notebook.telemetry.activities import DOING, Activities, Log, Ribbon, add, mark, totals


def test_a_rank_tells_while_it_does_something_and_at_the_end():
    told: list[Activities] = []
    log = Log(3, 4, told.append)
    with activities.logged(log):
        activities.begin("import")
        eventually(lambda: told and told[-1]["doing"] == "i")
        begin = time.time()
        activities.begin("trace")
        time.sleep(0.02)
        activities.begin("train")
        traced = time.time() - begin
    assert "".join(news["doing"] for news in told) == "ict"
    assert {news["rank"] for news in told} == {3}
    begins = [begin for news in told for begin in news["begins"]]
    assert begins == sorted(begins)
    assert 0.019 < told[-1]["seconds"]["c"] <= traced + 0.001
    assert not log._teller.is_alive()


def test_what_is_too_short_to_be_seen_is_counted_and_not_told():
    told: list[Activities] = []
    log = Log(0, 2, told.append)
    with activities.logged(log):
        activities.begin("train")
        begin = time.time()
        for _ in range(2000):
            with activities.during("wait"):
                pass
        seconds = time.time() - begin
        with activities.during("epoch_end"):
            time.sleep(0.02)
    doing = "".join(news["doing"] for news in told)
    begins = [begin for news in told for begin in news["begins"]]
    # A wait in which the machine did something else for long enough is one that is seen.
    seen = [b - a for letter, (a, b) in zip(doing, pairwise(begins), strict=False) if letter == "w"]
    assert all(waited > 0.008 for waited in seen)
    assert doing.replace("wt", "") == "tet"
    assert sum(log._seconds.values()) == pytest.approx(log._since - log._begins[0])
    assert log._seconds["e"] >= 0.02
    assert 0 < log._seconds["w"] < seconds


def test_without_a_log_nothing_happens():
    with activities.during("wait"):
        activities.begin("train")
    assert (activities.now(), activities.gathered()) == ("", None)


def test_what_is_gathered_is_what_was_told_and_at_the_end_all():
    told: list[Activities] = []
    log = Log(0, 2, told.append)
    with activities.logged(log):
        activities.begin("import")
        eventually(lambda: told)
        activities.begin("train")
        assert (news := activities.gathered()) and news["doing"] in ("i", "it")
        rest = activities.gathered(all_of_it=True)
    assert news["doing"] + (rest or {"doing": ""})["doing"] == "it"
    assert activities.gathered() is None


def test_the_same_news_twice_are_taken_once():
    ribbon = Ribbon(100.0, 110.0)
    first = Activities(rank=0, doing="ic", begins=[100.5, 102.0], seconds={"i": 1.5})
    more = Activities(rank=0, doing="ct", begins=[102.0, 104.0], seconds={"i": 1.5, "c": 2.0})
    for news in (first, more, first):
        add(ribbon, news)
    assert (ribbon.ranks[0].doing, ribbon.ranks[0].begins) == ("ict", [100.5, 102.0, 104.0])
    assert totals(ribbon.ranks[0], 110.0) == {"i": 1.5, "c": 2.0, "t": 6.0}


def test_of_a_rank_that_died_and_was_started_again_all_counts():
    ribbon = Ribbon(100.0, 120.0)
    add(ribbon, Activities(rank=1, doing="it", begins=[100.0, 102.0], seconds={"i": 2.0}))
    mark(ribbon, [1], "dead", 105.0)
    mark(ribbon, [1], "restart", 107.0)
    add(ribbon, Activities(rank=1, doing="it", begins=[110.0, 113.0], seconds={"i": 3.0}))
    assert ribbon.ranks[1].doing == "itdrit"
    seconds = {"i": 5.0, "t": 10.0, "d": 2.0, "r": 3.0}
    assert totals(ribbon.ranks[1], 120.0) == seconds


def test_the_account_says_where_the_time_went_and_on_whom():
    ribbon = Ribbon(-9.0, 20.0)
    for rank in range(4):
        end = "e" if rank == 0 else "w"
        seconds = {"i": 4.0, "c": 3.0, "t": 2.5, end: 9.5, "v": 1.0, "k": 0.001}
        add(ribbon, Activities(rank=rank, doing="it", begins=[1.0, 20.0], seconds=seconds))
    assert time_summary(ribbon, 5.5e-3) == (
        "29 s: starting 10 s, importing 4 s, tracing 3 s, training 2.5 s (median step 5.5 ms), "
        "validation 1 s, end of epoch 9.5 s on rank 0"
    )
    assert time_summary(Ribbon(0.0, 5.0)) == ""


def test_letters_names_and_colours_are_unlike():
    for field in ("letter", "name", "words", "colour"):
        assert len({getattr(doing, field) for doing in DOING.values()}) == len(DOING)
