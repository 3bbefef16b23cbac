"""Settings of a sweep as a person writes them; without ranks."""

import argparse

import pytest
from IPython.core.error import UsageError

from tnt_notebook.magics.settings import check_used, setting, space_of
from tnt_notebook.magics.sweep_magic import duration
from tnt_notebook.sweep.space import Choice, Range


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("width=64|128|256", "width", Choice((64, 128, 256))),
        ("act=relu|tanh", "act", Choice(("relu", "tanh"))),
        ("bias=True|False|None", "bias", Choice((True, False, None))),
        ("l2=0|1e-4|0.1", "l2", Choice((0, 1e-4, 0.1))),
        ("rate=log(1e-4,1e-1)", "rate", Range(1e-4, 1e-1, log=True)),
        ("units=log(16,1024)", "units", Range(16, 1024, log=True)),
        ("dropout=0..0.5", "dropout", Range(0.0, 0.5)),
        ("dropout=0..0.5:0.1", "dropout", Range(0.0, 0.5, step=0.1)),
        ("depth=1..4", "depth", Range(1, 4)),
        ("units=32..128:32", "units", Range(32, 128, step=32)),
        ("shift=-1.5..-1", "shift", Range(-1.5, -1.0)),
    ],
)
def test_values(text, name, values):
    found = setting(text)
    assert found == (name, values)
    assert setting(f"{name}={values}") == found  # as files and messages say it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("width", "is not a setting: write NAME=VALUES"),
        ("=1|2", "'' is not a valid"),
        ("2x=1|2", "'2x' is not a valid variable name"),
        ("for=1|2", "'for' is not a valid"),
        ("max=1|2", "'max' is reserved by Python"),
        ("_x=1|2", "'_x' is reserved"),
        ("width=64", "one value, so there is nothing to sweep"),
        ("width=", "a value is missing"),
        ("width=64||128", "a value is missing"),
        ("width=64|64", "a value is there twice"),
        ("rate=1..0", "the lower end comes first"),
        ("rate=1..1", "both differ"),
        ("rate=a..b", "'a' is not a number: write a|b|c"),
        ("rate=0..inf", "'inf' is not a number"),
        ("rate=0..1:2", "within the range"),
        ("rate=0..1:0", "a step is above 0"),
        ("rate=log(0,1)", "a logarithm needs numbers above 0"),
        ("rate=log(1)", "write log"),
    ],
)
def test_anything_else_is_refused(text, message):
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        setting(text)


def test_a_setting_is_given_once():
    with pytest.raises(UsageError, match="width is given twice"):
        space_of([setting("width=1|2"), setting("width=3|4")])


@pytest.mark.parametrize(
    "cell",
    [
        "model(width)",
        "def build():\n    return Dense(width)\nbuild()",
        "[width for _ in range(3)]",
        "def other():\n    width = 3\nprint(width)",
        "!ls\nprint(width)",
    ],
)
def test_a_cell_uses_a_setting(cell):
    check_used(["width"], cell)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("model(with_another_name)", "does not use width"),
        ("def f():\n    width = 3\n    return width\nf()", "does not use width"),
        ("width = 3\nmodel(width)", "sets width itself"),
        ("from sizes import width\nmodel(width)", "sets width itself"),
        ("for width in (1, 2): model(width)", "sets width itself"),
        ("def f():\n    global width\n    width = 3\nf()", "sets width itself"),
    ],
)
def test_settings_that_make_no_difference_are_refused(cell, message):
    with pytest.raises(UsageError, match=message):
        check_used(["width"], cell)


def test_times():
    assert [duration(text) for text in ("90", "90s", "10m", "1.5h")] == [90, 90, 600, 5400]
    for text in ("", "0", "-1", "10d", "m"):
        with pytest.raises(argparse.ArgumentTypeError, match="write 90s, 10m or"):
            duration(text)
