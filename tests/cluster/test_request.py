"""What may be asked for, what follows from it, and what is refused with which words."""

import json
import re
from dataclasses import asdict

import pytest

from tnt_notebook import files
from tnt_notebook.cluster.launch.options import Request, seconds_of
from tnt_notebook.cluster.launch.request import request
from tnt_notebook.errors import ClusterError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 2, "launcher": "torque"}, "--launcher torque: it must be one of local, ssh,"),
        ({"ranks": 0}, "-n 0: a cluster has 1 to 65536 ranks."),
        ({"ranks": -3}, "-n -3: a cluster has 1 to 65536 ranks."),
        ({"ranks": 70_000}, "-n 70000: a cluster has 1 to 65536 ranks."),
        ({"nodes": 0, "launcher": "slurm"}, "--nodes 0: it must be from 1 to 65536."),
        ({"per_node": 0, "launcher": "slurm"}, "--per-node 0: it must be from 1 to 65536."),
        ({"ranks": 1, "cores": 0}, "--cores 0: it must be from 1 to 65536."),
        ({"nodes": 60_000, "per_node": 60_000, "launcher": "slurm"}, "3600000000 ranks are more"),
        ({"ranks": 1, "transport": "tcp"}, "--transport tcp: it must be one of auto, shm, mpi,"),
        ({"ranks": 1, "lanes": 0}, "--lanes 0: a rank has 1 to 8 progress threads."),
        ({"ranks": 1, "link": 0.0}, "--link 0: it must be a number of Mbit/s above 0."),
        ({"ranks": 1, "link": -1.5}, "--link -1.5: it must be a number of Mbit/s above 0."),
        ({"ranks": 1, "link": float("inf")}, "--link inf: it must be a number of Mbit/s above 0."),
        ({"ranks": 1, "gpus": -1}, "--gpus -1: the number of GPUs per node cannot be negative."),
        ({"ranks": 2, "time": "1h"}, "--time is for a batch system: add --launcher slurm, pbs,"),
        ({"ranks": 2, "partition": "x"}, "--partition is for a batch system"),
        ({"ranks": 2, "account": "x"}, "--account is for a batch system"),
        ({"ranks": 2, "launcher": "ssh"}, "--launcher ssh needs --hostfile FILE"),
        ({"ranks": 2, "hostfile": "f"}, "--hostfile goes with --launcher ssh, and not with local."),
        ({"ranks": 2, "nodes": 2}, "--nodes 2: --launcher local is for this machine."),
        ({}, "start needs the number of ranks: -n 4, or --nodes 2 --per-node 4."),
        ({"ranks": 5, "nodes": 2, "per_node": 2, "launcher": "slurm"},
         "-n 5 is not --nodes 2 times --per-node 2. Give two of the three."),
        ({"ranks": 1, "nodes": 2, "launcher": "slurm"}, "-n 1 --nodes 2: each node needs a rank."),
        ({"ranks": 4, "nodes": 2, "launcher": "sge"}, "--nodes: in Grid Engine a parallel"),
        ({"ranks": 4, "per_node": 2, "launcher": "sge"}, "--per-node: in Grid Engine a parallel"),
        ({"ranks": 1, "modules": ["a b"]}, "--modules 'a b': this is not a valid name."),
        ({"ranks": 1, "modules": ["$(rm x)"]}, "--modules '$(rm x)': this is not a valid name."),
        ({"ranks": 1, "modules": ["-x"]}, "--modules -x: this is not a valid name."),
        ({"ranks": 1, "launcher": "pbs", "partition": "a\nb"}, "--partition 'a\\nb': this is not"),
        ({"ranks": 1, "launcher": "pbs", "account": ""}, "--account '': this is not a valid name."),
        ({"ranks": 1, "launcher": "pbs", "account": "a;b"}, "--account a;b: this is not a valid"),
        ({"ranks": 1, "extra": ["a\n#SBATCH b"]}, "--extra 'a\\n#SBATCH b': it must be options on"),
        ({"ranks": 1, "extra": ["it's"]}, "--extra \"it's\": it must be options on one line."),
        ({"ranks": 1, "extra": [" "]}, "--extra ' ': it must be options on one line."),
        ({"ranks": 1, "env": {"A-B": "1"}}, "--env A-B: write it as NAME=VALUE, on one line."),
        ({"ranks": 1, "env": {"A": "1\n2"}}, "--env A: write it as NAME=VALUE, on one line."),
        ({"ranks": 1, "env": {"": "1"}}, "--env '': write it as NAME=VALUE, on one line."),
        ({"ranks": 1, "keep": -1.0}, "--keep -1: it must be a number of hours, 0 or more."),
        ({"ranks": 1, "keep": float("nan")}, "--keep nan: it must be a number of hours"),
        ({"ranks": 1, "timeout": 0.0}, "--timeout 0: it must be a number of seconds above 0."),
        ({"ranks": 1, "timeout": float("nan")}, "--timeout nan: it must be a number of seconds"),
    ],
)  # fmt: skip
def test_what_is_refused(options, message):
    with pytest.raises(ClusterError, match=re.escape(message)):
        request(options.pop("ranks", None), **options)


@pytest.mark.parametrize(
    ("ranks", "nodes", "per_node", "expected"),
    [
        (4, None, None, (4, None)),
        (None, 2, None, (2, 2)),
        (None, None, 3, (3, 1)),
        (None, 2, 3, (6, 2)),
        (6, 2, 3, (6, 2)),
        (5, 2, None, (5, 2)),
        (5, None, 2, (5, 3)),
    ],
)
def test_ranks_and_nodes_follow_from_each_other(ranks, nodes, per_node, expected):
    asked = request(ranks, launcher="slurm", nodes=nodes, per_node=per_node)
    assert (asked.ranks, asked.nodes) == expected


@pytest.mark.parametrize(
    ("options", "hosts", "ranks"),
    [
        ({}, (("a", 2), ("b", 1), ("c", 4)), 7),
        ({"ranks": 3}, (("a", 2), ("b", 1), ("c", 4)), 3),
        ({"per_node": 2}, (("a", 2), ("b", 2), ("c", 2)), 6),
        ({"nodes": 2}, (("a", 2), ("b", 1)), 3),
        ({"nodes": 2, "per_node": 3, "ranks": 6}, (("a", 3), ("b", 3)), 6),
    ],
)
def test_hosts_of_a_file(tmp_path, options, hosts, ranks):
    file = tmp_path / "hosts"
    file.write_text("a slots=2\nb\nc:4\n")
    asked = request(options.pop("ranks", None), launcher="ssh", hostfile=file, **options)
    assert (asked.hosts, asked.ranks, asked.nodes) == (hosts, ranks, len(hosts))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 4}, "-n 4: the hosts of the hostfile take 3 ranks."),
        ({"nodes": 3}, "--nodes 3: the hostfile has 2 hosts."),
        ({"ranks": 3, "nodes": 2, "per_node": 1}, "-n 3: the hosts of the hostfile take 2 ranks."),
        ({"ranks": 1, "nodes": 2}, "-n 1 --nodes 2: each node needs a rank."),
    ],
)
def test_hosts_that_do_not_suffice(tmp_path, options, message):
    file = tmp_path / "hosts"
    file.write_text("a slots=2\nb\n")
    with pytest.raises(ClusterError, match=re.escape(message)):
        request(options.pop("ranks", None), launcher="ssh", hostfile=file, **options)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 5400), ("90", 5400), (0.5, 30), ("1.5", 90), ("90s", 90), ("30m", 1800),
        ("12h", 43200), ("1.5h", 5400), ("2d", 172_800), ("90:00", 5400), ("1:30:00", 5400),
        ("2-12:00", 216_000), ("2-12:00:05", 216_005), (" 5 ", 300), ("36:00:00", 129_600),
    ],
)  # fmt: skip
def test_time_limits(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "0", "0s", "-5", "soon", "1:2:3:4", "1-2", "12 h", "1e3", "nan", "inf", "1:90:00", "1:60",
     "٣", "0:00", "99999999999999"],
)  # fmt: skip
def test_what_is_no_time_limit(text):
    with pytest.raises(ClusterError, match="--time .*: write minutes"):
        request(1, launcher="slurm", time=text)


def test_timeouts_allow_for_nodes_that_are_far():
    assert request(1).timeout_s == 60 and request(1, launcher="lsf").timeout_s == 180


def test_a_request_comes_back_from_a_file():
    asked = request(
        4, launcher="pbs", nodes=2, gpus=1, cores=2, time="1h", partition="gpu", account="me",
        modules=["a/1", "b"], env={"A": "b c"}, extra=["-x", "-l y=1"], keep=2, transport="mpi",
    )  # fmt: skip
    assert files.typed(Request, json.loads(json.dumps(asdict(asked)))) == asked


def test_an_option_that_there_is_not_is_named():
    with pytest.raises(TypeError, match="no option 'partitoin'; it has ranks, launcher, nodes"):
        request(1, partitoin="x")
