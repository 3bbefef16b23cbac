"""What TCP carries between two hosts: ``goodput.py listen`` on one, ``goodput.py HOST`` on another.

`measured` runs both, and nothing but sockets of the standard library.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.hosts import Host

_PORT, _BLOCK = 5001, 1 << 18


@dataclass(frozen=True)
class Link:
    """What was measured: payload in bits a second, and the fastest round trip of a byte."""

    bits_per_second: float
    round_trip_s: float


def measured(sender: Host, receiver: Host, seconds: float = 1.0) -> Link:
    """Sends for so many seconds from one host to the other."""
    program = [sys.executable, "-S", str(Path(__file__))]
    listener = receiver.popen([*program, "listen"], stdout=-1, text=True)
    with listener:
        assert listener.stdout is not None and listener.stdout.readline() == "ready\n"
        command = [*program, receiver.name, str(seconds)]
        run = sender.run(command, check=True, capture_output=True, text=True, timeout=180)
    return Link(**json.loads(run.stdout))


def listen() -> None:
    """Returns bytes one by one until a whole block comes; then counts, and says how many came."""
    with socket.create_server(("", _PORT)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while (single := connection.recv(1)) == b".":
            connection.sendall(single)
        count, memory = 1, bytearray(_BLOCK)
        while received := connection.recv_into(memory):
            count += received
        connection.sendall(str(count).encode())


def send(host: str, seconds: float) -> Link:
    """The other side of `listen`."""
    with socket.create_connection((host, _PORT)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        round_trips = []
        for _ in range(200):
            began = time.perf_counter()
            connection.sendall(b".")
            connection.recv(1)
            round_trips.append(time.perf_counter() - began)
        block = bytes(_BLOCK)
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            connection.sendall(block)
        connection.shutdown(socket.SHUT_WR)
        received = int(connection.recv(32))
        return Link(8 * received / (time.perf_counter() - began), min(round_trips))


if __name__ == "__main__":
    if sys.argv[1] == "listen":
        listen()
    else:
        print(json.dumps(vars(send(sys.argv[1], float(sys.argv[2])))))
