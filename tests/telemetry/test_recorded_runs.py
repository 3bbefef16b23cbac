"""What is concluded from real runs, as they were recorded: the same from early on to the end."""

import json
import re
from itertools import groupby

import pytest

from tests.telemetry.record_runs import RECORDED
from tnt_notebook.telemetry import Frame
from tnt_notebook.telemetry.breakdown import shares
from tnt_notebook.telemetry.codec import decode_frame
from tnt_notebook.telemetry.evidence import evidence_of
from tnt_notebook.telemetry.limit import limit

#: What limits each, in the order in which it may have been thought; "" is nothing worth a sentence.
CAUSES = {
    "short_steps": ["", "short steps"],
    "slow_input": ["", "input made by all"],
    "slow_rank": ["", "slow rank"],
    "slow_rank_of_a_server": [""],
    "busy_rank": ["", "busy rank"],
    "uneven_stages": ["", "uneven stages"],
    "bubble": ["", "bubble"],
    "exchange": ["", "exchange"],
    "nothing": [""],
}


def frames_of(name: str) -> list[Frame]:
    usual = {"epoch": 1, "epochs": 1, "step": 1, "steps": None, "eta": None, "logs": {}}
    lines = (RECORDED / f"{name}.jsonl").read_text().splitlines()
    rows = [usual | {"rates": [0.0, 0.0]} | json.loads(line) for line in lines]
    return [decode_frame(json.dumps(row).encode()) for row in rows]


@pytest.mark.parametrize("name", CAUSES)
def test_what_limits_a_run_is_known_soon_and_stays(name):
    frames = frames_of(name)
    so_far = [limit(evidence_of(frames[:count])) for count in range(1, len(frames) + 1)]
    causes = [cause for cause, _ in groupby("" if one is None else one.cause for one in so_far)]
    assert causes == CAUSES[name]
    for count, found in enumerate(so_far, 1):
        if found is not None:
            bars = evidence_of(frames[:count]).of_ranks
            parts = [shares(some) for some in (bars, bars[1:], bars[:1])]
            shown = {f"{share:.0%}" for of_some in parts for share in of_some.values()}
            if found.cause == "short steps":
                shown.add(f"{parts[0]['input'] + parts[0]['other']:.0%}")
            told = re.findall(r"\d+%", found.sentence.split(" of a step")[0])
            assert f"{found.share:.0%}" in shown and {*told} <= shown


def test_every_recorded_run_is_judged():
    assert {path.stem for path in RECORDED.iterdir()} == set(CAUSES)
