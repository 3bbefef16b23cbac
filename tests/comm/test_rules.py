"""The table that says which algorithm a collective uses: read, written, agreed on."""

import json
from pathlib import Path

import numpy as np
import pytest

from tnt_notebook import comm
from tnt_notebook.comm import _kernels, rules
from tnt_notebook.comm.rules import Rule
from tnt_notebook.errors import RulesError
from tnt_notebook.telemetry.events import is_of

RING = Rule("allreduce", "ring", 4096, "one", 2, 4, False, "on a Monday")
CHAIN = Rule("broadcast", "chain")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the table of this test lies, or would lie."""
    monkeypatch.delenv(rules.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "tnt_notebook" / "rules.json"


def test_what_is_saved_is_what_is_read(file):
    assert rules.saved() == []
    assert rules.save([RING, CHAIN]) == file
    assert rules.saved() == [RING, CHAIN]


def test_rules_for_the_same_case_are_replaced_and_others_stay(file):
    rules.save([RING, CHAIN])
    better = Rule("allreduce", "direct", None, "one", 2, 4, False)
    rules.save([better])
    assert rules.saved() == [better, CHAIN]


def test_without_a_home_folder_of_configuration_it_is_the_usual_one(monkeypatch, tmp_path):
    monkeypatch.delenv(rules.VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for unusable in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CONFIG_HOME", unusable)
        assert rules.path() == tmp_path / ".config" / "tnt_notebook" / "rules.json"


def test_a_named_file_must_be_there_and_an_empty_name_means_none(file, monkeypatch):
    rules.save([RING])
    monkeypatch.setenv(rules.VARIABLE, str(file))
    assert rules.saved() == [RING]
    monkeypatch.setenv(rules.VARIABLE, "")
    assert rules.path() is None and rules.saved() == []
    with pytest.raises(RulesError, match="TNT_RULES is empty"):
        rules.save([RING])
    monkeypatch.setenv(rules.VARIABLE, str(file.parent / "none.json"))
    with pytest.raises(RulesError, match=r"TNT_RULES names /.*/none.json, which is not there"):
        rules.saved()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rules": [\n{"collective": "allreduce",}]}', "FILE, line 2: "),
        ("[]", 'FILE has no list of "rules"'),
        ('{"rules": [3]}', "FILE, rule 1: 3 is not a rule"),
        ('{"rules": [{"algorithm": "ring"}]}', "FILE, rule 1: 'collective' is missing"),
        ('{"rules": [{"collective": "allreduce"}]}', "FILE, rule 1: 'algorithm' is missing"),
    ],
)
def test_a_broken_file_is_told_by_name_and_place(text, message):
    with pytest.raises(RulesError) as error:
        rules.parsed(text, "FILE")
    assert str(error.value).startswith(message)
    assert "TNT_RULES= (empty) goes on without it" in str(error.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"algorithm": "rign"}, "algorithm 'rign' of allreduce is not one of ring, recursive_"),
        ({"collective": "scan"}, "collective 'scan' is not one of allreduce, "),
        ({"nodes": "two"}, "nodes 'two' is not one of any, one, many"),
        ({"upto": 4}, "'upto' is not one of collective, algorithm, up_to_bytes"),
        ({"up_to_bytes": "4 KB"}, 'up_to_bytes "4 KB" is not a whole number of 0 or more'),
        ({"up_to_bytes": 1 << 70}, "is not a whole number"),
        ({"min_ranks": None}, "min_ranks null is not a whole number of 1 or more"),
        ({"max_ranks": True}, "max_ranks true is not a whole number"),
        ({"in_place": 1}, "in_place 1 is neither true nor false"),
        ({"measured": 4}, "measured 4 is not a text"),
    ],
)
def test_an_entry_that_cannot_be_is_told_by_its_number(entry, message):
    good = {"collective": "allreduce", "algorithm": "ring"}
    with pytest.raises(RulesError) as error:
        rules.parsed(json.dumps({"rules": [good, good | entry]}), "FILE")
    assert str(error.value).startswith("FILE, rule 2: ") and message in str(error.value)


def test_the_defaults_are_rules_too():
    found = rules.default()
    assert {rule.collective for rule in found} == set(rules.COLLECTIVES)
    assert rules.parsed(rules._text(found), "FILE") == found


# On ranks -------------------------------------------------------------------------------------


def taken(algorithm: str) -> tuple[list[str], list[str]]:
    """The algorithms of an allreduce before and after a rule is in use."""
    w = comm.world()
    found = []
    for own in ([], [Rule("allreduce", algorithm, 4096)], []):
        w.rules = own
        w._connection.engine.set_rules(rules.for_engine(own))
        for count in (1024, 1025):
            w.allreduce(np.ones(count, "float32"))
            trace = w.trace()
            exchanges = trace[is_of(trace, "exchange") & (trace["channel"] == 0)]
            found.append(_kernels.algorithms()[exchanges["algorithm"][-1]][1])
    return found


def test_a_rule_is_taken_up_to_its_size(ranks):
    for small, large, *ruled, small_again, large_again in ranks.run(2, taken, "ring"):
        assert small != "ring"
        assert ruled == ["ring", large]
        assert (small_again, large_again) == (small, large)


def agreed(text: str, tmp_path: Path) -> tuple[str, list[Rule]]:
    """Rank 0 has a table, the others none of it."""
    w = comm.world()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(rules.VARIABLE, "")
        if w.rank == 0:
            file = tmp_path / "table.json"
            file.write_text(text)
            patch.setenv(rules.VARIABLE, str(file))
        try:
            w.load_rules()
        except RulesError as error:
            return str(error), w.rules
        finally:
            found = w.rules
            patch.setenv(rules.VARIABLE, "")
            w.load_rules()
    return "", found


def test_all_ranks_have_the_table_of_rank_0_or_its_error(ranks, tmp_path):
    assert ranks.run(3, agreed, rules._text([RING]), tmp_path) == [("", [RING])] * 3
    for error, found in ranks.run(3, agreed, "{", tmp_path):
        assert error.startswith(f"{tmp_path}/table.json, line 1: ") and found == []
