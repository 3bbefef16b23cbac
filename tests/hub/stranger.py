"""What somebody tries who has no business with a cluster of the same host. Run as that user.

    python stranger.py ATTEMPT < what is known of the cluster, as JSON

Prints, as a JSON list, what succeeded.
"""

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import Session
from zmq.utils.monitor import parse_monitor_message

_PTRACE_ATTACH = 16
_STRING, _UINT32 = 3, 14  # of PMIx
_LISTEN_S = 2.0
_PATIENCE_S = 2.5


def files(target: dict[str, Any]) -> list[str]:
    """Reads, lists, writes, removes, connects to each file of the cluster."""
    return _succeeded(
        target["files"],
        {
            "read": lambda path: os.close(os.open(path, os.O_RDONLY)),
            "write": lambda path: os.close(os.open(path, os.O_WRONLY)),
            "list": os.listdir,
            "create in": lambda path: os.mkdir(os.path.join(path, "new")),
            "remove": lambda path: os.rename(path, path + ".away"),
            "connect to": lambda path: socket.socket(socket.AF_UNIX).connect(path),
        },
    )


def processes(target: dict[str, Any]) -> list[str]:
    """Looks into each process, stops it, kills it."""
    attempts: dict[str, Callable[[int], object]] = {
        "list files of": lambda pid: os.listdir(f"/proc/{pid}/fd"),
        "signal": lambda pid: os.kill(pid, 0),
        "stop": lambda pid: os.kill(pid, signal.SIGSTOP),
        "kill": lambda pid: os.kill(pid, signal.SIGKILL),
        "kill by descriptor": lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), 9),
        "trace": _trace,
    }
    for file in ("environ", "maps", "mem", "io", "auxv"):
        attempts[f"read {file} of"] = lambda pid, file=file: Path(f"/proc/{pid}", file).read_bytes()
    return _succeeded(target["pids"], attempts)


def messages(target: dict[str, Any]) -> list[str]:
    """Talks ZeroMQ to each port: without keys, with keys of its own; with the cluster's own public
    key, where that is known."""
    context = zmq.Context()
    open_, events = zmq.Poller(), {}
    public, secret = zmq.curve_keypair()
    known = target.get("curve_publickey")
    keys = (None, public, *([known.encode()] if known else []))
    for (address, port), key, kind in product(target["ports"], keys, (zmq.DEALER, zmq.SUB)):
        place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        one = context.socket(kind)
        one.linger, one.ipv6, one.sndtimeo = 0, True, 0
        if key is not None:
            one.curve_publickey, one.curve_secretkey, one.curve_serverkey = public, secret, key
        if kind == zmq.SUB:
            one.subscribe(b"")
        monitor = one.get_monitor_socket()
        for heard in (monitor, one):
            events[heard] = f"{place} as {kind.name} {'without key' if not key else ''}"
            open_.register(heard, zmq.POLLIN)
        one.connect(f"tcp://{place}")
        if kind == zmq.DEALER:
            guess = Session(key=secrets.token_bytes(32))
            content = {"uuid": "x" * 32, "id": 2}
            with contextlib.suppress(zmq.Again):  # refused already
                guess.send(one, "registration_request", content=content)
    done = []
    deadline = time.monotonic() + _LISTEN_S
    while (left := deadline - time.monotonic()) > 0:
        for one, _ in open_.poll(1000 * left):
            parts = one.recv_multipart()
            if one.socket_type != zmq.PAIR:
                done.append(f"heard from {events[one]}")
            elif parse_monitor_message(parts)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                done.append(f"greeted by {events[one]}")
    return sorted(set(done))


def texts(target: dict[str, Any]) -> list[str]:
    """Connects, says something, and waits for an answer."""
    done = []
    for address, port in target["ports"]:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as one:
            one.settimeout(0.2)
            try:
                one.connect((address, port))
                one.sendall(b"\0" * 256)
                answer = one.recv(4096)
            except OSError:
                continue
            # ZeroMQ greets everybody in 64 bytes, before anyone has said who they are.
            if answer and not answer.startswith(b"\xff\0\0\0\0\0\0\0"):
                done.append(f"{address}:{port} said {answer!r}")
    return done


def programs(target: dict[str, Any]) -> list[str]:
    """Has Open MPI's daemon take it for one of the cluster's tools, which may start programs."""
    uri = "{}@0.0;tcp4://127.0.0.1:{}".format(*target["daemon"])
    info = (_Info * 2)(
        _Info(b"pmix.srvr.uri", 0, _Value(_STRING, uri.encode())),
        _Info(b"pmix.tool.mretries", 0, _Value(_UINT32, ctypes.c_char_p(1))),
    )
    # A port that speaks another language does not answer, and PMIx waits for ever.
    threading.Timer(_PATIENCE_S, lambda: os._exit(os.write(1, b"[]\n") and 0)).start()
    me = ctypes.create_string_buffer(512)
    status = ctypes.CDLL(target["libpmix"]).PMIx_tool_init(me, info, 2)
    return [f"joined {uri}"] if status == 0 else []


class _Value(ctypes.Structure):
    """pmix_value_t"""

    _fields_ = (("type", ctypes.c_uint16), ("value", ctypes.c_char_p), ("_", ctypes.c_uint64 * 2))


class _Info(ctypes.Structure):
    """pmix_info_t"""

    _fields_ = (("key", ctypes.c_char * 512), ("flags", ctypes.c_uint32), ("value", _Value))


def _trace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(_PTRACE_ATTACH, pid, 0, 0):
        raise OSError(ctypes.get_errno(), "no trace")


def _succeeded(targets: list[Any], attempts: dict[str, Callable[[Any], object]]) -> list[str]:
    """Which attempts at which targets nobody has refused."""
    done = []
    for (verb, attempt), target in product(attempts.items(), targets):
        with contextlib.suppress(OSError):
            attempt(target)
            done.append(f"{verb} {target}")
    return done


if __name__ == "__main__":
    attempt = {f.__name__: f for f in (files, processes, messages, texts, programs)}[sys.argv[1]]
    print(json.dumps(attempt(json.load(sys.stdin))), flush=True)
    os._exit(0)  # without good-byes to those who do not listen
