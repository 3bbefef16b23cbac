"""How far the clocks of hosts are apart."""

import time

from tnt_notebook.comm import clocks, world


def test_the_shortest_round_trip_tells_most():
    exchanges = [(100, 1150, 300), (400, 1455, 500), (600, 1900, 900)]
    assert clocks.ahead_of(exchanges) == (1005, 50)


def test_an_error_is_never_told_too_small():
    # Whatever the way there and back takes, the truth lies within the error.
    for there in range(8):
        for back in range(8):
            ahead, error = clocks.ahead_of([(10, 10 + there + 1234, 10 + there + back)])
            assert abs(ahead - 1234) <= error


def compared(skew_of_host: list[int], node: list[int]) -> tuple[list[int], int]:
    over = world()
    skew = skew_of_host[node[over.rank]]
    found = clocks.compare(over._connection.parent, node, 30, lambda: time.monotonic_ns() + skew)
    return found.ahead_ns.tolist(), found.error_ns


def test_hosts_whose_clocks_differ(ranks):
    skews = [5_000_000_000, -3_000_000_000, 0]
    node = [0, 0, 1, 2]
    answers = ranks.run(4, compared, skews, node)
    assert all(answer == answers[0] for answer in answers)
    ahead, error = answers[0]
    assert 0 < error < 500_000_000
    assert ahead[:2] == [0, 0]
    for rank in (2, 3):
        assert abs(ahead[rank] - (skews[node[rank]] - skews[0])) <= error


def test_one_host_has_one_clock(ranks):
    for ahead, error in ranks.run(2, compared, [7], [0, 0]):
        assert (ahead, error) == ([0, 0], 0)
