"""The table of ranks."""

from tnt_notebook.cluster import RankStatus
from tnt_notebook.magics.table import status_table


def test_columns_are_aligned_and_gaps_are_named() -> None:
    rows = [
        RankStatus(0, "node1", 71, (0, 1, 2, 3), "0", 81 * 2**20, "idle"),
        RankStatus(1, "node1", 72, (4, 6, 7), None, 1234 * 2**20, "busy"),
        RankStatus(10, "n2", 4321, (0,), "-1", None, "dead"),
    ]
    assert status_table(rows).splitlines() == [
        "rank  host    pid  cores  GPU     memory  state",
        "   0  node1    71  0-3    0       81 MiB  idle",
        "   1  node1    72  4,6-7  all   1234 MiB  busy",
        "  10  n2     4321  0      none         -  dead",
    ]
