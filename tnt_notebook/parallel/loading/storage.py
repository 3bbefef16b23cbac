"""A storage with a latency and a bandwidth, before files that lie elsewhere: to measure with.

A read is carried out at once, and given back when this storage would have given it: the latency of
each request, and its bytes one after the other on one line. Requests that are under way together
share the bandwidth and wait for their latencies at the same time, as with a file server.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

#: Bytes that one request reads at most; NFS clients ask for as many.
REQUEST_BYTES = 1 << 20


@dataclass(frozen=True)
class Rates:
    """Of a storage.

    Attributes:
        latency_s: seconds of an open, and of each read, before its first byte.
        bytes_per_s: of all reads of this rank together.
    """

    latency_s: float
    bytes_per_s: float


class Throttle:
    """Holds reads up as a storage of these rates does.

    Attributes:
        waited_s: seconds that reads have been held up, all of them together.
    """

    def __init__(self, rates: Rates) -> None:
        self.rates, self.waited_s = rates, 0.0
        self._lock = threading.Lock()
        self._first = self._line_free = 0.0  # clocks are above

    def calls_waiting(self) -> float:
        """How many calls waited on average, since the first one."""
        with self._lock:
            return self.waited_s / max(1e-9, time.monotonic() - self._first)

    def hold(self, requests: int, count: int) -> None:
        """Returns when so many requests, one after the other, have brought so many bytes."""
        began = time.monotonic()
        with self._lock:
            self._first = self._first or began
            free = max(self._line_free, began) + count / self.rates.bytes_per_s
            self._line_free = free
        until = free + requests * self.rates.latency_s
        time.sleep(max(0.0, until - time.monotonic()))
        with self._lock:
            self.waited_s += time.monotonic() - began

    def file(self, content: tf.Tensor) -> tf.Tensor:
        """A whole file that has been read, a string, when it would be here: an open, and reads."""

        def hold(length: np.ndarray) -> np.ndarray:
            self.hold(1 + -(-int(length) // REQUEST_BYTES), int(length))
            return length

        return _after(hold, tf.strings.length(content), content)

    def stream(self, records: tf.data.Dataset) -> tf.data.Dataset:
        """Strings of a long file, read in order: a request brings as many as it has room for."""

        def hold(length: np.ndarray) -> np.ndarray:
            self.hold(1, REQUEST_BYTES)
            return length

        def read(left: tf.Tensor, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            length = tf.strings.length(record)
            empty = left < length
            here = tf.cond(empty, lambda: _after(hold, length, record), lambda: record)
            return tf.where(empty, REQUEST_BYTES, left) - length, here

        return records.scan(tf.constant(0), read)


def _after(hold: object, length: tf.Tensor, content: tf.Tensor) -> tf.Tensor:
    """The content, after a function in Python of its length has returned."""
    held = tf.numpy_function(hold, [length], length.dtype, stateful=True)
    with tf.control_dependencies([held]):
        return tf.identity(content)
