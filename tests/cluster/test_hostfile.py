"""Hostfiles: what is read, and what is refused with the line that is wrong."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tnt_notebook.cluster.launch.hostfile import parsed, read_hostfile
from tnt_notebook.cluster.launch.network import address_for
from tnt_notebook.cluster.launch.request import request
from tnt_notebook.errors import ClusterError


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node1\n", [("node1", 1)]),
        ("node1 slots=4\nnode2:2\n", [("node1", 4), ("node2", 2)]),
        ("  node1   slots = 4  # the large one\n\n# none\n", [("node1", 4)]),
        ("node1 slots=2 max_slots=8\nnode2 max-slots=8", [("node1", 2), ("node2", 1)]),
        ("node1\nnode1\nnode2 slots=2\nnode1:3", [("node1", 5), ("node2", 2)]),
        ("10.0.0.7 slots=2\nn-1.site_a.org", [("10.0.0.7", 2), ("n-1.site_a.org", 1)]),
        ("node1 slots=2\r\nnode2\r\n", [("node1", 2), ("node2", 1)]),
    ],
)
def test_hosts_and_their_slots(text, hosts):
    assert parsed(text, "f") == hosts


@pytest.mark.parametrize(
    "line",
    ["-oProxyCommand=x", "a;b", "$(x)", "a b", "node1 slots=0", "node1 slots=-1", "node1 slots=x",
     "node1:0", "node1 slots=99999999", "node1 slots=٣", "a,b", "a/b", ".a", "node1 slots"],
)  # fmt: skip
def test_a_line_that_is_no_host_is_named(line):
    with pytest.raises(ClusterError, match=re.escape(f"f, line 2: {line!r} is not a host.")):
        parsed(f"node1\n{line}\n", "f")


def test_files_that_are_no_hostfiles(tmp_path):
    empty, large = tmp_path / "empty", tmp_path / "large"
    empty.write_text("# nothing\n")
    large.write_bytes(b"node1\n" * 200_000)
    for path, message in {
        empty: f"{empty}: there is no host in it.",
        large: f"--hostfile {large}: it is larger than 1 MiB, too large for a hostfile.",
        tmp_path: f"--hostfile {tmp_path}: Is a directory.",
        tmp_path / "none": f"--hostfile {tmp_path / 'none'}: No such file or directory.",
        Path("a\0b"): "--hostfile 'a\\x00b': embedded null byte.",
    }.items():
        with pytest.raises(ClusterError, match=re.escape(message)):
            read_hostfile(path)
    with pytest.raises(ClusterError, match="--hostfile ~nobody-here/x: No such file"):
        request(1, launcher="ssh", hostfile="~nobody-here/x")


PIECES = st.sampled_from(["node1", ":", "slots", "=", " ", "\n", "#", "4", "max_slots=", "\t", "-"])


@settings(max_examples=300)
@given(st.lists(PIECES | st.text(max_size=4), max_size=20).map("".join))
def test_whatever_it_holds_there_are_hosts_or_an_error(text):
    try:
        hosts = parsed(text, "f")
    except ClusterError:
        return
    assert hosts and len(dict(hosts)) == len(hosts)
    for name, slots in hosts:
        assert re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII) and slots >= 1


def test_names_that_no_network_knows_are_no_crash():
    address, why = address_for(["a" * 200, "no-such-host.invalid", "127.0.0.1"])
    assert (address, why) == ("127.0.0.1", "on the way to 127.0.0.1 (lo)")


def test_an_interface_may_be_chosen():
    assert address_for(["127.0.0.1"], "lo") == ("127.0.0.1", "as was asked")
    assert address_for([], "127.0.0.1") == ("127.0.0.1", "as was asked")
    with pytest.raises(ClusterError, match=r"--interface ib9: this host has lo \(127.0.0.1\)"):
        address_for([], "ib9")
