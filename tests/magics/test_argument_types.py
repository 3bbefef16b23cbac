"""Ranks as a person writes them."""

import argparse

import pytest

from tnt_notebook.magics.lists import rank_list
from tnt_notebook.magics.typed import words_of


@pytest.mark.parametrize(
    ("text", "ranks"), [("2", [2]), ("0,2-3", [0, 2, 3]), ("3-4, 0", [0, 3, 4]), ("1-1,1", [1])]
)
def test_ranks_and_spans(text, ranks):
    assert rank_list(text) == ranks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "write ranks like 0,2-3") for text in ("", "a", "1-", "-1", "0,,1", "0-2-4")),
        ("3-2", "counts down"),
        ("0-99999999999", "so many ranks"),
    ],
)
def test_anything_else_is_refused(text, message):
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        rank_list(text)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("--checkpoint ''", ["--checkpoint", ""]),
        ("""--checkpoint "my runs/a" --name 'x' """, ["--checkpoint", "my runs/a", "--name", "x"]),
        ("a'b c'd e\\ f", ["ab cd", "e f"]),
        ("""-n 2 --env "A=it's" --extra '--qos=high' --wait""",
         ["-n", "2", "--env", "A=it's", "--extra=--qos=high", "--wait"]),
        ("--env=A='b c' -- '-x'", ["--env=A=b c", "--", "-x"]),
    ],
)  # fmt: skip
def test_words_are_those_of_a_shell(line, words):
    assert words_of(line) == words
