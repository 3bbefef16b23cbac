"""Networks by levels: what a file says, what it must not say, and what messages take."""

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnt_notebook.errors import NetworkError
from tnt_notebook.plan import network_file
from tnt_notebook.plan.network import (
    Level,
    Link,
    Network,
    as_json,
    between_stages,
    from_json,
    message,
    slowest_neighbours,
)
from tnt_notebook.plan.quantities import parsed_rate, parsed_seconds, rate_text

NODE, FABRIC = Link(1e-6, 100e9), Link(5e-6, 25e9)
TWO = Network("two levels", (Level("node", 4, NODE), Level("fabric", None, FABRIC, 50e9)))

FILE = """
about = "a test"
[[level]]
name = "node"
ranks = 4
latency = "1 us"
rate = "100 GB/s"
[[level]]
name = "fabric"
latency = "5us"
rate = "200 Gbit/s"
port = "50 GB/s"
"""


def test_a_file_is_read_level_by_level():
    assert network_file.parsed(FILE, "a.toml") == Network("a test", TWO.levels)


@pytest.mark.parametrize("name", network_file.names())
def test_those_of_the_package_can_be_read_and_sent(name):
    network = network_file.network_of(name)
    assert from_json(as_json(network)) == network
    assert network.about and network.most_ranks is None


def test_the_guide_shows_one_of_them_and_names_all():
    guide = (Path(__file__).parents[2] / "docs/guide/pipelines.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    assert network_file.parsed(shown, "the guide") == network_file.network_of("hdr-4xa100")
    assert all(f"`{name}`" in guide for name in network_file.names())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"1 us"', '"1 parsec"', "a.toml, level 1: latency: '1 parsec' is no time"),
        ('"1 us"', "1e-6", "a.toml, level 1: latency is 1e-06: write it in quotes, with its unit"),
        ('"1 us"', '"0 us"', "level 1: latency is '0 us', and should be more than 0, and finite"),
        ('"100 GB/s"', '"100 GB"', "level 1: rate: '100 GB' is no rate: write it like \"25 GB/s\""),
        ("port =", "prot =", "level 2: unknown key 'prot'; is it port?"),
        ("about =", "colour =", "a.toml: unknown key 'colour'; there are about, level"),
        ("ranks = 4\n", "", "level 1 has no ranks"),
        ("ranks = 4", "ranks = 0", "level 1: ranks is 0, and should be a number of at least 2"),
        ("ranks = 4", "ranks = true", "level 1: ranks is True, and should be a number"),
        ('"fabric"', '"fabric"\nranks = 6', "level 2: ranks is 6, and should be a multiple of the"),
        ('"node"', '"node"\nport = "1 GB/s"', "level 1: port goes with a level that has one withi"),
        ('"node"', "3", "level 1: name is 3, and should be a text"),
        ('"a test"', "3", "a.toml: about is 3, and should be a line of text"),
        ("[[level]]", "[level]", "a.toml is not TOML"),
        ("[[level]]", "[[levels]]", "a.toml: unknown key 'levels'; is it level?"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_place(old, new, said):
    with pytest.raises(NetworkError) as raised:
        network_file.parsed(FILE.replace(old, new), "a.toml")
    assert said in str(raised.value)


def test_a_network_that_is_not_there_is_said(tmp_path):
    with pytest.raises(NetworkError, match="There is no network, and no file, hdr-4xa10. Is it hd"):
        network_file.network_of("hdr-4xa10")
    with pytest.raises(NetworkError, match="cannot be read"):
        network_file.network_of(str(tmp_path))
    with pytest.raises(NetworkError, match="has no levels"):
        network_file.parsed('about = "nothing"', "a.toml")
    path = tmp_path / "own.toml"
    path.write_text(FILE)
    assert network_file.network_of(str(path)).about == "a test"


def test_quantities_are_read_as_they_are_written():
    assert [parsed_seconds(t) for t in ("2s", "1.5 us", "3 ms", "4e2 ns", "1 µs")] == [
        pytest.approx(s) for s in (2, 1.5e-6, 3e-3, 4e-7, 1e-6)
    ]
    assert [parsed_rate(t) for t in ("25 GB/s", "200 Gbit/s", "1.5kB/s", "7 B/s")] == [
        pytest.approx(r) for r in (25e9, 25e9, 1500, 7)
    ]


@given(st.floats(1, 1e14))
def test_a_rate_is_written_as_it_is_read(rate):
    assert parsed_rate(rate_text(rate)) == pytest.approx(rate, rel=1e-3)


def test_a_message_takes_what_the_smallest_group_with_both_ranks_has():
    assert message(TWO, 0, 3) == NODE
    assert message(TWO, 3, 4) == FABRIC
    one = Network("of 8", (Level("node", 4, NODE), Level("rack", 8, FABRIC, 1e9)))
    assert message(one, 3, 4) == Link(5e-6, 1e9)  # the port is slower than the rank
    assert one.most_ranks == 8
    with pytest.raises(ValueError, match="the ranks 7 and 8 are in no group of of 8"):
        message(one, 7, 8)


@given(st.integers(2, 12), st.integers(1, 12), st.data())
def test_stages_that_are_on_two_nodes_in_any_pipeline_are_as_slow_as_there(stages, replicas, data):
    maker = data.draw(st.integers(0, stages - 2))
    user = data.draw(st.integers(maker + 1, stages - 1))
    begins = range(0, replicas * stages, stages)
    apart = any((begin + maker) // 4 != (begin + user) // 4 for begin in begins)
    assert between_stages(TWO, stages, replicas, maker, user) == (FABRIC if apart else NODE)


def test_neighbours_are_as_slow_as_the_slowest_of_them():
    assert slowest_neighbours(TWO, 4, 100) == NODE
    assert slowest_neighbours(TWO, 3, 1) == NODE
    assert slowest_neighbours(TWO, 3, 2) == FABRIC
    assert slowest_neighbours(TWO, 8, 1) == FABRIC


def test_a_link_of_its_own_has_no_end():
    assert Link(0.0, math.inf).seconds(1e12) == 0.0
