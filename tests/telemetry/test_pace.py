"""The limit on how often something is sent."""

import threading
import time

from tnt_notebook.telemetry.pace import Paced

INTERVAL = 0.1


class Received:
    """Collects values with their times, and tells when a certain one came."""

    def __init__(self, last: int) -> None:
        self.values, self.times = [], []
        self.done, self._last = threading.Event(), last

    def __call__(self, value: int) -> None:
        self.times.append(time.monotonic())
        self.values.append(value)
        if value == self._last:
            self.done.set()


def test_the_first_goes_at_once_and_of_many_only_the_last():
    received = Received(last=99)
    paced = Paced(received, INTERVAL)
    for value in range(100):
        paced.put(value)
    assert received.values[0] == 0
    assert received.done.wait(10)
    assert received.values == [0, 99]
    assert received.times[1] - received.times[0] >= 0.9 * INTERVAL


def test_flush_sends_what_waits_once():
    received = Received(last=2)
    paced = Paced(received, 60.0)
    paced.put(1)
    paced.put(2)
    paced.flush()
    paced.flush()
    assert received.values == [1, 2]


def test_many_threads_keep_to_the_pace():
    received = Received(last=-1)
    paced = Paced(received, INTERVAL)
    threads = [
        threading.Thread(target=lambda: [paced.put(value) for value in range(2000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    paced.put(-1)
    assert received.done.wait(10)
    gaps = [b - a for a, b in zip(received.times, received.times[1:], strict=False)]
    assert all(gap >= 0.9 * INTERVAL for gap in gaps)
