"""Which exchanges are conversions, and what is said of them."""

from tests.telemetry.by_hand import events, step_of
from tnt_notebook.telemetry.boxes import boxes_of_step
from tnt_notebook.telemetry.collectives import collectives
from tnt_notebook.telemetry.conversions import conversions, converting, on
from tnt_notebook.telemetry.exchanges import Exchange, Purpose
from tnt_notebook.telemetry.step_trace import Box, words_of

CONVERTS = Purpose.CONVERSION
CHANNELS = {
    7: Exchange("halo exchange for conv", CONVERTS, (1, 3), 0.25, 0.5),
    8: Exchange("sum for dense", CONVERTS),
    9: Exchange("gather for dense", CONVERTS, (2,), 0.0, 1.0),
}  # fmt: skip


def exchanged(channel, begin, end):
    return [
        ("copy_in", begin, begin + 1, channel), ("exchange", begin + 1, end - 1, channel),
        ("copy_out", end - 1, end, channel),
    ]  # fmt: skip


def test_collectives_of_their_channels_are_conversions():
    made = events(
        *exchanged(7, 100, 140), *exchanged(8, 150, 160), *exchanged(7, 180, 190),
        *exchanged(9, 170, 175), *exchanged(10, 190, 196), ("step", 90, 200),
    )  # fmt: skip
    made["bytes"] = 8192
    assert converting(CHANNELS | {10: Exchange("allreduce of bucket 0")}) == CHANNELS
    found = conversions(made, CHANNELS)
    spans = [(100, 140), (150, 160), (170, 175), (180, 190)]
    assert [(one.begin_ns, one.end_ns) for one in found] == spans
    assert [str(one) for one in found] == [
        "halo exchange for conv, 2 KB sent, with ranks 1 and 3",
        "sum for dense, of 8 KB",
        "gather for dense, 8 KB received, with rank 2",
        "halo exchange for conv, 2 KB sent, with ranks 1 and 3",
    ]
    own = collectives(made)
    boxes = boxes_of_step(made, made[-1], own[~on(own, CHANNELS)], converted=found)
    kinds = [kind.decode() for kind in boxes["kind"]]
    assert sorted(kinds) == ["C", "V", "V", "V", "V", "X"]
    assert boxes["number"][boxes["kind"] == b"V"].tolist() == [0, 1, 2, 3]


def test_a_box_says_what_it_is():
    box = Box(0, "V", 0, 1, 0.0, 1.0)
    step = step_of(box, conversions=["a", "gather for dense, 1 KB sent, with ranks 1 and 2"])
    assert words_of(box, step) == "gather for dense, 1 KB sent, with ranks 1 and 2"
    assert words_of(box, step_of(box)) == "conversion 1 of the step"
    assert words_of(box._replace(kind="D"), step) == "wait for input"
