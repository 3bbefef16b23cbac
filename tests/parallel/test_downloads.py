"""What Keras downloads: one rank does, from a real server; and where there is none, all say so."""

from __future__ import annotations

import http.server
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import keras
import pytest

import tnt_notebook.keras  # noqa: F401  from here on files are downloaded once
from tnt_notebook.errors import DownloadError

CONTENT = os.urandom(1 << 20)


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """Its address, and what it was asked for. Slow, so that all ranks come meanwhile."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            for begin in range(0, len(CONTENT), 1 << 16):
                self.wfile.write(CONTENT[begin : begin + (1 << 16)])
                threading.Event().wait(0.02)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}", asked
        serving.shutdown()


def download(origin: str, home: str) -> bytes | str:
    """What a rank has, or what it says."""
    os.environ["no_proxy"] = "127.0.0.1"
    try:
        return Path(keras.utils.get_file(origin=origin, cache_dir=home)).read_bytes()
    except DownloadError as error:
        return str(error)


def test_one_rank_downloads_and_all_have_the_file(ranks, server, tmp_path):
    address, asked = server
    # Left by one that was killed.
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / ".weights.part-host-1").write_bytes(b"half")
    assert ranks.run(4, download, f"{address}/weights", str(tmp_path)) == [CONTENT] * 4
    assert asked == ["/weights"]
    assert [file.name for file in (tmp_path / "datasets").iterdir()] == ["weights"]


def test_where_nothing_answers_all_ranks_say_what_to_do(ranks, tmp_path):
    with socket.socket() as closed:  # a port that is taken, where nobody listens
        closed.bind(("127.0.0.1", 0))
        origin = f"http://127.0.0.1:{closed.getsockname()[1]}/weights"
        said = ranks.run(3, download, origin, str(tmp_path))
    for one in said:
        assert f"cannot download {origin}" in one and "Connection refused" in one
        assert f"put it at {tmp_path / 'datasets' / 'weights'}" in one
    assert not any((tmp_path / "datasets").iterdir())
