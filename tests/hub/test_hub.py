"""Two users of one host at the same time, each in a browser, behind a JupyterHub."""

import contextlib
import json
from typing import Any

import pytest

from tests.hub.desk import FIT, desk, expect, kernel, left, moves
from tests.support.hub import Hub
from tests.support.waiting import eventually

pytestmark = pytest.mark.browser

LOAD, START, TRAIN, ATTACH, LIST, STOP = range(6)
CELLS = ("%load_ext tnt_notebook", "%tnt_cluster start -n 2", FIT, "%tnt_cluster attach",
         "%tnt_cluster list", "%tnt_cluster stop")  # fmt: skip
#: Of a user's only cluster, as JSON.
ABOUT = """
import json
import psutil
from tnt_notebook.cluster.files import record
from tnt_notebook.warden import processes_of
(known,) = record.listed()
listening = {
    tuple(connection.laddr)
    for pid in processes_of(known.record.id)
    for connection in psutil.Process(pid).net_connections()
    if connection.status == psutil.CONN_LISTEN
}
print(json.dumps({
    "id": known.record.id, "listening": sorted(listening), "folder": str(known.folder.path),
    "segments": str(known.folder.segments), "pids": [seat["pid"] for seat in known.record.seats],
}))
"""


def about(hub: Hub, user: str) -> dict[str, Any]:
    return json.loads(hub.host.ask(ABOUT, user))


def test_two_users_start_train_and_stop(hub, browser):
    with contextlib.ExitStack() as stack:
        alice, bob = (
            stack.enter_context(desk(hub, browser, user, CELLS)) for user in ("alice", "bob")
        )
        for notebook in (alice, bob):
            notebook.run_and_wait(LOAD)
            notebook.run(START)
        for notebook in (alice, bob):
            expect(notebook.outputs(START)).to_contain_text("2 ranks are ready", timeout=90_000)
            notebook.run(TRAIN)
        assert moves(alice, TRAIN) and moves(bob, TRAIN)

        hers, his = about(hub, "alice"), about(hub, "bob")
        # Two addresses of the host may have the same port.
        assert len(hers["listening"]) > 10
        assert not [address for address in hers["listening"] if address in his["listening"]]
        assert not set(hers["pids"]) & set(his["pids"])
        assert all(hers[what] != his[what] for what in ("id", "folder", "segments"))
        bob.run_and_wait(LIST)
        expect(bob.outputs(LIST)).to_contain_text(his["id"])
        expect(bob.outputs(LIST)).not_to_contain_text(hers["id"])

        # The panel of each is told of their own.
        for user, own in (("alice", hers), ("bob", his)):
            told = hub.ask("GET", f"/user/{user}/tnt/clusters")["clusters"]
            assert [one["id"] for one in told] == [own["id"]]

        # What shows a live view is not idle, for those who cull what is.
        since = kernel(hub, "bob")["last_activity"]
        eventually(lambda: kernel(hub, "bob")["last_activity"] > since)

        # A new kernel in her server finds ranks, training and live view as they were.
        alice.restart_kernel()
        alice.run_and_wait(LOAD)
        alice.run_and_wait(ATTACH)
        expect(alice.outputs(ATTACH)).to_contain_text(f"of cluster {hers['id']} are here again")
        assert moves(alice, ATTACH) and about(hub, "alice")["pids"] == hers["pids"]
        alice.run_and_wait(STOP)
        expect(alice.outputs(STOP)).to_contain_text("stopped")
        assert not any(hers["id"] in line for line in left(hub, "alice"))
        assert moves(bob, TRAIN)

    for user in ("alice", "bob"):  # he has not stopped his ranks
        hub.stop_server(user)
        with contextlib.suppress(AssertionError):
            eventually(lambda user=user: left(hub, user) == [])
        assert left(hub, user) == []
