"""The table of ranks, and the line about how they exchange."""

from tnt_notebook.cluster import Links, RankStatus
from tnt_notebook.magics.table import links_line, status_table


def test_columns_are_aligned_and_numbers_of_cores_and_gpus_do_not_read_like_counts():
    rows = [
        RankStatus(0, "node1", 71, (0, 1, 2, 3), "0", 81 * 2**20, "idle", 0, "shm+mpi", 4),
        RankStatus(1, "node1", 72, (4, 6, 7), None, 1234 * 2**20, "busy", 0, "shm+mpi", 4),
        RankStatus(2, "node1", 73, (7,), "1,2", 1234 * 2**20, "idle", 0, "shm+mpi"),
        RankStatus(3, "n2", 4320, (0,), None, 2**20, "idle", 1, "mpi", 0),
        RankStatus(4, "n3", 4321, (0,), None, 2**20, "idle", 2, "mpi", 1),
        RankStatus(10, "n2", 4321, (0,), "-1", None, "dead", 1, gpus=2),
    ]
    assert status_table(rows).splitlines() == [
        "rank  host   node  link      pid  runs on              GPU         memory  state",
        "   0  node1     0  shm+mpi    71  cores 0-3            GPU 0       81 MiB  idle",
        "   1  node1     0  shm+mpi    72  cores 4,6-7, shared  all 4     1234 MiB  busy",
        "   2  node1     0  shm+mpi    73  core 7, shared       GPUs 1,2  1234 MiB  idle",
        "   3  n2        1  mpi      4320  core 0               none         1 MiB  idle",
        "   4  n3        2  mpi      4321  core 0               GPU 0        1 MiB  idle",
        "  10  n2        1  -        4321  core 0               none             -  dead",
    ]


def test_a_line_says_how_ranks_exchange_and_why():
    links = Links("shared memory, mpi between 2 nodes", "ranks of a host share memory", 1)
    assert links_line(links, 4) == (
        "ranks exchange by shared memory, mpi between 2 nodes: ranks of a host share memory"
    )
    assert links_line(Links("mpi", "it was asked for", 2), 2) == (
        "ranks exchange by mpi, with 2 progress threads each: it was asked for"
    )
    assert links_line(Links("none", "there is one rank", 1), 1) == (
        "a single rank has no peer to exchange with"
    )
