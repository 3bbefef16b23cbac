"""MPI's daemons listen where no forgotten connection dials: never at an ephemeral port."""

from pathlib import Path

import psutil

from tnt_notebook.cluster import Cluster
from tnt_notebook.cluster.ports import undialled


def ephemeral() -> range:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return range(low, high + 1)


def test_a_range_is_found_beside_the_ephemeral_one() -> None:
    ends = undialled()
    assert ends is not None
    assert ends[1] - ends[0] >= 1_000
    assert not set(range(ends[0], ends[1] + 1)) & set(ephemeral())


def test_the_launcher_of_a_cluster_listens_there() -> None:
    cluster = Cluster(2)
    try:
        launchers = [p for p in psutil.Process().children(recursive=True) if "prte" in p.name()]
        listening = [
            connection.laddr.port
            for launcher in launchers
            for connection in launcher.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
    finally:
        cluster.stop()
    assert listening
    assert not set(listening) & set(ephemeral())
