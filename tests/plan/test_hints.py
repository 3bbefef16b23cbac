"""Layouts as they are typed."""

import pytest

from tnt_notebook.errors import MeshError
from tnt_notebook.plan.hints import layouts_of, parsed_hint, parsed_hints
from tnt_notebook.plan.mesh import Split


def test_a_hint_is_a_pattern_and_ways():
    assert parsed_hint("conv.*: filters=model, height=h") == (
        "conv.*", {"filters": "model", "height": "h"},
    )  # fmt: skip
    assert parsed_hint("(?:a|b):rows=m") == ("(?:a|b)", {"rows": "m"})
    hints = parsed_hints(["a:rows=m", "b:columns=m"])
    assert layouts_of(hints) == {"a": Split(rows="m"), "b": Split(columns="m")}


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["filters=model"], "does not name any layers"),
        ([":filters=model"], "does not name any layers"),
        (["conv"], "does not name any layers"),
        (
            ["conv:filters"],
            "'filters' is not a way to divide a layer: write, for instance, --layout",
        ),
        (["conv:filters=2"], "'filters=2' is not a way"),
        (["(:filters=model"], "not a regular expression"),
        (["a:rows=m,columns=m"], "uses m twice"),
        (["a:rows=m,rows=n"], "uses rows twice"),
        (["a:rows=m", "a:columns=m"], "'a' is given twice"),
    ],
)
def test_what_is_no_hint_is_refused(texts, why):
    with pytest.raises(MeshError, match=why):
        parsed_hints(texts)
