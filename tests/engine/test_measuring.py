"""What a rank measures of itself and of its host."""

import time

import psutil

from tnt_notebook import comm
from tnt_notebook.engine import meters

GIB = 1 << 30


def test_a_rank_measures_processors_memory_and_its_host():
    sampler = meters.sampler(comm.world())
    meters.add_power_and_gpu(sampler)
    begin, cores = time.process_time(), len(psutil.Process().cpu_affinity())
    since = time.monotonic()
    while time.process_time() < begin + 0.3:
        sum(range(1000))
    read = {letter: measure() for letter, measure in sampler.measures.items()}
    busy = 100 * (time.process_time() - begin) / (time.monotonic() - since) / cores
    assert abs(read["c"] - busy) < 10
    assert abs(read["m"] - psutil.Process().memory_info().rss / (1 << 20)) < 50
    assert 0 < read["h"] < 100 and read["n"] >= 0


def test_measuring_takes_less_than_a_thousandth_of_a_second():
    sampler = meters.sampler(comm.world())
    now, begin = time.time(), time.process_time()
    for second in range(100):
        sampler.measure(now + second)
    assert (time.process_time() - begin) / 100 < 1e-3
    assert len(sampler.gather()["at"]) == 100


def test_it_is_said_in_time_that_memory_ends():
    for whole, enough, low in ((2, 0.4, 0.2), (16, 2, 0.9), (1024, 60, 50)):
        assert not meters.host_is_low("node1", int(enough * GIB), whole * GIB)
        assert meters.host_is_low("node1", int(low * GIB), whole * GIB)
    words = meters.host_is_low("node1 (ranks 4 to 7)", GIB // 2, 16 * GIB)
    assert words.startswith(
        "Host node1 (ranks 4 to 7) has less than 600 MB of 16 GB of memory left"
    )
    assert not meters.gpu_is_low(3, None) and not meters.gpu_is_low(3, (70 * GIB, 80 * GIB))
    words = meters.gpu_is_low(3, (80 * GIB - GIB // 2, 80 * GIB))
    assert words.startswith("The GPU of rank 3 has less than 600 MB of 80 GB of memory left")
