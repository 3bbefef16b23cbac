"""How a program on one emulated host starts one on another: a stand-in for sshd.

A host cannot enter another one's namespace of process numbers, so the process that holds the hosts
does it for them. `host_agent.py` is the stand-in for ssh.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.hosts import Host


class Door:
    """Starts what agents ask for, until it is closed.

    Args:
        address: of its Unix socket.
        hosts: by name.
    """

    def __init__(self, address: Path, hosts: Mapping[str, Host]) -> None:
        self.address = address
        self._hosts = hosts
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(address))
        self._listener.listen()
        self._open, self._closing = os.pipe()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._closing)

    def _accept(self) -> None:
        with self._listener, os.fdopen(self._open):
            while self._listener in select.select([self._listener, self._open], [], [])[0]:
                agent, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(agent,), daemon=True).start()

    def _serve(self, agent: socket.socket) -> None:
        with agent:
            text, streams, _, _ = socket.recv_fds(agent, 1 << 20, 3)
            try:
                request = json.loads(text)
                status = self._run(agent, request, streams)
            except (OSError, KeyError, ValueError) as error:
                os.write(streams[2], f"host door: {error!r}\n".encode())
                status = 255
            finally:
                for stream in streams:
                    os.close(stream)
            with contextlib.suppress(OSError):
                agent.sendall(b"%d" % status)

    def _run(self, agent: socket.socket, request: dict, streams: list[int]) -> int:
        process = self._hosts[request["host"]].popen(
            ["sh", "-c", request["command"]], env=request["environment"], cwd=request["folder"],
            stdin=streams[0], stdout=streams[1], stderr=streams[2],
        )  # fmt: skip
        ended = os.pidfd_open(process.pid)
        try:
            if ended not in select.select([ended, agent], [], [])[0]:
                process.terminate()  # the agent has gone
            return process.wait()
        finally:
            os.close(ended)
