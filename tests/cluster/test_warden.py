"""Whatever is said to the warden, it lives on, keeps its owner, and ends its cluster."""

import json
import os
import resource
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.waiting import eventually
from tests.support.wardens import alive, wardens
from tnt_notebook import warden
from tnt_notebook.cluster.files import lease
from tnt_notebook.cluster.files.lease import Lease


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return new_plan(tmp_path_factory)


@pytest.fixture(scope="module")
def held(plan: dict[str, Any]) -> Iterator[Lease]:
    with cluster_of_a_process(plan) as held:
        yield held
        held.let_go()


def new_plan(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("warden") / "tnt-of-a-test"
    folder.mkdir()
    return {
        "id": f"test-{folder.parent.name}-{os.getpid()}", "folders": [str(folder)],
        "socket": str(folder / "warden"), "busy": str(folder / "busy"), "keep_s": 0.2,
        "fit_s": 0.5, "ask": [], "cancel": [], "listing": [], "sweep": [],
    }  # fmt: skip


@contextmanager
def cluster_of_a_process(plan: dict[str, Any]) -> Iterator[Lease]:
    """A lease of it; it is to be ended within the block."""
    held = Lease.begin(plan)
    environment = {**os.environ, warden.MARKER: plan["id"]}
    process = subprocess.Popen(["sleep", "1000"], env=environment)
    eventually(lambda: warden.processes_of(plan["id"]))
    yield held
    process.wait(10)
    eventually(lambda: not Path(plan["folders"][0]).exists())


def said(plan: dict[str, Any], *pieces: bytes) -> socket.socket:
    """A connection on which this has been said."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(plan["socket"])
    connection.settimeout(5)
    for piece in pieces:
        try:
            connection.sendall(piece)
        except OSError:  # it has heard enough
            break
    return connection


def check(plan: dict[str, Any], held: Lease) -> None:
    kept = lease.status(plan)
    assert kept is not None and kept["owner"]["pid"] == os.getpid() and held.hold()
    assert warden.processes_of(plan["id"])


WORDS = st.sampled_from(
    [b'{"own": ', b'{"ask": true}', b'{"keep_s": ', b"{", b"}", b"[", b"1e999", b"NaN", b"Infinity",
     b"-1", b"9" * 400, b"\n", b"\n\n", b'"', b"\\ud800", b"\xff\xfe", b"\x00", b"true", b","]
)  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WORDS | st.binary(max_size=6), max_size=12).map(b"".join))
def test_random_words(plan, held, text):
    said(plan, text).close()
    check(plan, held)


@pytest.mark.parametrize(
    "line",
    [b"[" * 60_000, b"x" * 200_000, b'{"keep_s": 1e308}', b'{"keep_s": NaN}', b'{"keep_s": -5}',
     b'{"keep_s": ' + b"9" * 400 + b"}", b'{"keep_s": true}', b'{"own": 1, "name": ["x", {}]}',
     b'{"own": true, "name": "\\ud800"}', b'{"ask": true}\n' * 20_000],
    ids=lambda line: line[:24].decode(),
)  # fmt: skip
def test_lines_that_are_too_much(plan, held, line):
    connection = said(plan, line, b"\n")
    check(plan, held)
    connection.close()
    check(plan, held)
    held.keep(0.2)


def test_who_says_half_a_line_keeps_nobody_waiting(plan, held):
    with said(plan, b'{"ask"') as slow:
        begin = time.monotonic()
        check(plan, held)
        assert time.monotonic() - begin < 2
        slow.sendall(b': true}\n{"ask": 1}\n')
        answers = b""
        while answers.count(b"\n") < 2:
            answers += slow.recv(4096)
        assert all(json.loads(line)["owner"] for line in answers.splitlines())


def test_many_connections(plan, held):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limit[1]), limit[1]))
    try:
        with ExitStack() as stack:
            for _ in range(1200):  # select knows 1024 descriptors
                stack.enter_context(said(plan, b"x"))
            check(plan, held)
        check(plan, held)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_a_warden_that_is_slow_to_answer_has_not_ended(plan, held):
    """Its machine is busy, and more want to speak to it than it has room for."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(plan["socket"])
        size = struct.calcsize("3i")
        peer = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid = struct.unpack("3i", peer)[0]
    with ExitStack() as stack:
        os.kill(pid, signal.SIGSTOP)
        again = threading.Timer(0.5, os.kill, (pid, signal.SIGCONT))
        again.start()
        stack.callback(again.join)
        with pytest.raises(BlockingIOError):
            while True:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(plan["socket"])
        check(plan, held)
    check(plan, held)


def test_whichever_of_its_processes_is_killed_nobody_notices_and_there_are_two_again(plan, held):
    held.keep(0.3)
    for which in (0, 1, 0, 1):
        killed = wardens(plan)[which]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda killed=killed: len({*wardens(plan)} - {killed}) == 2)
        check(plan, held)
        assert lease.status(plan)["keep_s"] == 0.3
    held.keep(0.2)


def test_when_both_are_killed_at_once_their_owner_starts_others(plan, held):
    for pid in wardens(plan):
        os.kill(pid, signal.SIGSTOP)  # none of them sees the other's end
    for pid in wardens(plan):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: lease.status(plan) is None)
    assert held.hold()
    check(plan, held)
    assert len(wardens(plan)) == 2


def test_a_lease_is_the_same_for_whoever_keeps_it(tmp_path_factory):
    plan = new_plan(tmp_path_factory) | {"keep_s": 30.0}
    with cluster_of_a_process(plan) as held:
        held.let_go()
        eventually(lambda: (lease.status(plan) or {"owner": True})["owner"] is None)
        for _ in range(2):
            killed = wardens(plan)[0]
            os.kill(killed, signal.SIGKILL)
            eventually(lambda killed=killed: len({*wardens(plan)} - {killed}) == 2)
        status = lease.status(plan)
        assert status is not None and status["ends_in_s"] <= 30.0
        Lease.take(plan).release()


def test_who_is_stopped_is_woken_by_the_other(plan, held):
    for which in (0, 1):
        os.kill(wardens(plan)[which], signal.SIGSTOP)
        check(plan, held)
        eventually(lambda: {psutil.Process(p).status() for p in wardens(plan)} == {"sleeping"})


@pytest.mark.parametrize("how", ["killed with its owner", "both stopped", "told to"])
def test_whatever_becomes_of_it_the_cluster_ends(tmp_path_factory, how):
    plan = new_plan(tmp_path_factory)
    with cluster_of_a_process(plan) as held:
        first, second = wardens(plan)
        if how == "killed with its owner":
            os.kill(first, signal.SIGKILL)
            held.let_go()
        elif how == "told to":
            os.killpg(first, signal.SIGTERM)
        else:
            os.kill(second, signal.SIGSTOP)
            os.kill(first, signal.SIGSTOP)
            held.release()
    eventually(lambda: not any(map(alive, (first, second))))
    assert not held.hold()


def test_then_it_ends_its_cluster(plan, held):
    strangers = [said(plan, b'{"keep'), said(plan)]
    held.let_go()
    eventually(
        lambda: not warden.processes_of(plan["id"]) and not Path(plan["folders"][0]).exists()
    )
    for stranger in strangers:
        stranger.close()
    assert lease.status(plan) is None
