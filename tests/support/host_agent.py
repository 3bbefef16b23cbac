"""Starts a command on an emulated host: ``host_agent.py DOOR [ssh's options] HOST COMMAND...``.

The command sees this process's environment, folder and standard streams; its exit status is given
back. See `host_door.py`.
"""

import json
import os
import socket
import sys

_OPTIONS_WITH_VALUE = ("-o", "-p", "-l", "-i", "-F")


def main(door: str, words: list[str]) -> int:
    while words[0].startswith("-"):
        words = words[2 if words[0] in _OPTIONS_WITH_VALUE else 1 :]
    request = {
        "host": words[0].rpartition("@")[2],
        "command": " ".join(words[1:]),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(door)
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        return int(connection.recv(16) or b"255")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
