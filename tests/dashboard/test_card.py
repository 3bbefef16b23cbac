"""The widget's traits, as a browser would see them."""

import json
import zlib

import pytest

from tests.dashboard.runs import frames_of_a_run
from tests.dashboard.steps import step_of_a_pipeline
from tnt_notebook.dashboard.card.card import HISTORY_LIMIT, ROWS_DRAWN, Card
from tnt_notebook.dashboard.card.picture import card_html
from tnt_notebook.dashboard.figures.step_layout import card_step, time_of
from tnt_notebook.dashboard.figures.summary import summary
from tnt_notebook.telemetry import Breakdown, Frame
from tnt_notebook.telemetry.activities import Activities, Ribbon
from tnt_notebook.telemetry.evidence import USUAL
from tnt_notebook.telemetry.pace import CARD_BYTES_PER_S


def card_of(*frames: Frame, ranks: int = 2) -> Card:
    """A card that has drawn these frames."""
    card = Card("MLP", ranks)
    for frame in frames:
        card.draw(frame, frame.get("rows", []))
    return card


def test_a_browser_that_comes_back_reads_the_whole_history():
    frames = frames_of_a_run()
    card = card_of(*frames)
    state = card.get_state()
    elapsed = [point["elapsed"] for point in state["history"]]
    assert elapsed == pytest.approx([frame["elapsed"] for frame in frames])
    assert state["history"] is not card.history  # a copy: the list grows while it is sent
    assert state["frame"]["seq"] == frames[-1]["seq"]
    assert state["rows"] == [pytest.approx(row, rel=1e-5) for row in frames[-1]["rows"]]


def test_a_frame_sends_itself_only():
    """The history must not count as changed, or all of it would cross with each frame."""
    card = Card("MLP", 2)
    changed = []
    card.observe(lambda change: changed.append(change["name"]))
    for frame in frames_of_a_run(epochs=1)[:-1]:
        card.draw(frame, [])
    assert set(changed) == {"frame"}


def test_what_was_before_a_kernel_began_to_follow_a_run_is_in_the_history():
    """A view that follows gets all frames at once: without them the validations of all epochs would
    lie where it began."""
    frames = frames_of_a_run(epochs=4)
    card = Card("MLP", 2, follows=True)
    card.draw(frames[-1], frames[-1]["rows"], frames)
    assert [point["seq"] for point in card.history] == [frame["seq"] for frame in frames]
    assert {point["epoch"] for point in card.history} == {1, 2, 3, 4}
    changed = []
    card.observe(lambda change: changed.append(change["name"]), "history")
    later = {**frames[-1], "seq": frames[-1]["seq"] + 3}
    card.draw(later, [], [*frames, later])
    assert card.history[-1]["seq"] == later["seq"] and not changed


def test_where_time_goes_is_that_of_the_latest_look_at_this_run():
    step = Breakdown(0.001, 0.006, 0.0, 0.0, 0.002, 0.001)
    *frames, last = frames_of_a_run(breakdown=(step, step._replace(work=0.003, other=0.004)))
    card = card_of(*frames)
    assert card.time == {}
    card.draw(last, [], [*frames, last])
    assert card.time["step"] == "549 samples/s while training · median step 10 ms"
    parts = Breakdown(0.1, 0.3, 0.0, 0.0, 0.2, 0.4)._asdict()
    assert card.time["rows"][1] == ["rank 1", parts]
    assert card.time["limit"] == ""  # nobody waits
    card.draw(frames_of_a_run(start=50.0)[0], [])
    assert card.time == {}


def look(seconds: float, at: float, work: float) -> Frame:
    """A frame with a step of so many seconds, which is so much work."""
    step = Breakdown(0.0, work * seconds, 0.0, 0.0, (1 - work) * seconds, 0.0)
    frame = {**frames_of_a_run(4, breakdown=(step,) * 4)[-1], "time": at, "state": "running"}
    return {**frame, "step_s": seconds, "step_trace": step_of_a_pipeline() | {"seconds": seconds}}


def test_a_step_that_a_person_looks_at_has_bars_of_its_own_and_no_conclusion():
    run = [look(0.04, 10.0, 0.4), look(0.04, 11.0, 0.4), look(0.04, 12.0, 0.4)]
    card = card_of(run[0], ranks=4)
    card.show_step(run[0], run)
    assert "40 ms" in card.timeline["heading"] and card.time["step"].endswith("median step 40 ms")
    assert card.time["limit"].startswith("60% of a step is exchange")
    card.draw(look(0.09, 10.1, 0.8), [], run)  # so soon its boxes are not sent
    assert "40 ms" in card.timeline["heading"]
    card.look = {"which": "slowest"}
    card.show_step(look(0.09, 12.1, 0.8), run)
    assert card.time["step"] == "slowest step 90 ms" and card.time["limit"] == ""
    assert card.time["rows"][0][1]["work"] == 0.8
    card.draw(look(0.04, 20.0, 0.4), [], run)
    assert "90 ms" in card.timeline["heading"] and card.time["step"] == "slowest step 90 ms"


def test_bars_and_what_they_mean_stand_together_for_some_seconds():
    card, run = Card("MLP", 4), [look(0.04, at, 0.4) for at in (10.0, 10.5, 11.0)]
    card.draw(run[-1], [], run)
    before = card.time
    assert before["limit"].startswith("60% of a step is exchange")
    run += [look(0.04, 15.9, 0.5)]
    card.draw(run[-1], [], run)
    assert card.time == before
    run += [look(0.04, 16.1, 0.5)]
    card.draw(run[-1], [], run)
    assert card.time["limit"].startswith("56% of a step is exchange")
    assert card.time["rows"][0][1]["exchange"] == 0.56


def test_the_timeline_is_that_of_the_latest_step_of_this_run():
    frame = {**frames_of_a_run(4)[0], "step_trace": step_of_a_pipeline()}
    card = card_of(frame, ranks=4)
    assert card.timeline == {**card_step(step_of_a_pipeline()), "at": 1000.0, "which": "live"}
    sent = card.get_state()["timeline"]["deflated"]
    assert json.loads(zlib.decompress(sent)) == card.timeline
    assert len(sent) < len(json.dumps(step_of_a_pipeline()))
    assert "step_trace" not in card.frame
    card.draw(frames_of_a_run(4)[1], [])
    assert card.timeline
    card.draw(frames_of_a_run(4, start=50.0)[0], [])
    assert card.timeline == {}


def test_the_steps_of_many_ranks_are_sent_less_often():
    card = Card("MLP", 64)
    sent = []
    card.observe(lambda _: sent.append(len(card.get_state()["timeline"]["deflated"])), "timeline")
    frames = frames_of_a_run(64, steps=100)
    for frame in frames:
        frame["step_trace"] = step_of_a_pipeline(replicas=16, seed=frame["seq"])
    *running, last = frames
    for frame in running:
        card.draw(frame, [])
    seconds = running[-1]["time"] - running[0]["time"]
    assert len(sent) > 1
    assert sum(sent[:-1]) / seconds <= CARD_BYTES_PER_S
    card.draw(last, [])
    assert card.timeline["measured"] == last["step_trace"]  # the last step shows in any case


def test_what_ranks_do_is_sent_once_and_kept_for_a_browser_that_comes_back():
    card = Card("MLP", 2, began=100.0)
    changed = []
    card.observe(lambda change: changed.append(change["name"]))
    for doing, begin in (("i", 100.5), ("c", 102.25)):
        news = [Activities(rank=r, doing=doing, begins=[begin], seconds={}) for r in (1, 0)]
        card.tell(news, begin, str)
    assert card.told == {"seq": 2, "rows": [[1, "c", [2250]], [0, "c", [2250]]]}
    rows = [[0, "ic", [500, 2250]], [1, "ic", [500, 2250]]]
    assert card.get_state()["ribbon"] == {"began": 100.0, "rows": rows, "meters": []}
    assert set(changed) == {"told", "now"}


def test_a_sentence_stands_for_some_seconds():
    card = Card("MLP", 2)
    for now, said in ((1.0, "one"), (5.9, "two"), (6.1, "three")):
        card.tell([], now, said.strip)
        assert card.time_summary == ("one" if now < 6 else "three")


def test_of_many_ranks_the_card_shows_one_row():
    frames = frames_of_a_run(64, breakdown=(Breakdown(0.0, 0.5, 0.0, 0.0, 0.5, 0.0),) * 64)
    (row,) = time_of(frames)["rows"]
    parts = Breakdown(0.0, 0.5, 0.0, 0.0, 0.5, 0.0)._asdict()
    assert row == ["all ranks", parts]


def test_the_history_is_bounded():
    card = card_of(*frames_of_a_run(steps=1000))
    assert HISTORY_LIMIT / 3 < len(card.history) <= HISTORY_LIMIT
    assert card.history[-1]["seq"] == card.frame["seq"]


def test_of_very_many_epochs_fewer_of_the_older_ones_are_sent():
    card = Card("MLP", 2)
    rows = [{"epoch": epoch, "loss": 1.0, "val_loss": None} for epoch in range(1, 501)]
    card.draw(frames_of_a_run()[0], rows)
    assert 20 < len(card.rows) <= ROWS_DRAWN
    assert [card.rows[0], card.rows[-1]] == [rows[0], rows[-1]]


def test_without_a_browser_it_prints_the_same_in_every_run():
    assert repr(Card("MLP", 1)) == repr(Card("MLP", 1)) == "MLP: live view of 1 rank"
    assert repr(Card("MLP", 4)) == "MLP: live view of 4 ranks"


def test_what_a_plan_promised_stands_beside_what_is_measured():
    step = Breakdown(0.0, 0.5, 0.0, 0.0, 0.5, 0.0)
    run = frames_of_a_run(2, breakdown=(step, step))
    words = "plan: whole copies on 2 ranks"
    planned = [{**run[-1], "plan": words, "setup": {**USUAL, "promised_step_s": 0.8}}]
    assert card_of(*planned).frame["plan"] == words
    assert time_of(planned)["step"].endswith("median step 1 s, 800 ms promised (+25%)")
    assert "promised" not in time_of(run)["step"]
    text = summary("MLP", 2, planned, "finished")
    assert f"  {words}\n" in text
    assert "  median step 1 s: work 50%, exchange 50%\n  800 ms promised (+25%)\n" in text
    assert words in card_html("MLP", planned, "finished", None, Ribbon(0.0, 1.0))
