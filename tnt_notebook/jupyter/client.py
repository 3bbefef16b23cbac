"""ipyparallel's client, with requests that are heard of after their answers, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ipyparallel as ipp
from ipyparallel.client.futures import MessageFuture

REMEMBERED = 1 << 12  # messages, so that none is taken twice; the default takes 13 MB


class Client(ipp.Client):
    """Talks to the engines of a controller.

    Args:
        file: what the controller has written of how it is reached.
        profile: folder of the cluster's profile.
        ipython: IPython's own folder.
        cluster_id: of the controller.
        timeout: seconds until it has to answer.

    Raises:
        OSError, TimeoutError: the controller does not answer.
    """

    def __init__(
        self, file: Path, profile: Path, ipython: Path, cluster_id: str, timeout: float
    ) -> None:
        super().__init__(
            str(file),
            profile_dir=str(profile),
            cluster_id=cluster_id,
            ipython_dir=str(ipython),
            timeout=timeout,
        )
        self.session.digest_history_size = REMEMBERED

    @property
    def requests(self) -> Any:
        """The stream that requests are sent through: a send on its bare socket can swallow the
        event that announces a reply (ZeroMQ's are edge-triggered), which would then wait for the
        next message."""
        return self._mux_stream

    def identities(self, ranks: Sequence[int]) -> list[bytes]:
        """Of engines, as requests to them have it.

        Raises:
            KeyError, NoEnginesRegistered: one of them is not there any more.
        """
        return list(self._build_targets(list(ranks))[0])

    def hear(self, request: str, listener: Callable[[dict[str, Any]], None]) -> None:
        """Has `listener` called with what still comes of a request that has been answered. To be
        called in the IO thread, where it is called, too."""
        future = MessageFuture(request)
        future.iopub_callbacks.append(listener)
        self._futures[request] = future

    def unhear(self, request: str) -> None:
        """Forgets such a request. To be called in the IO thread."""
        self._futures.pop(request, None)
        self.metadata.pop(request, None)

    def forget_answered(self) -> None:
        """Forgets what is kept of requests that have been answered: all their ids."""
        self.history.clear()
        for request in list(self.metadata):
            if request not in self._futures:
                self.metadata.pop(request, None)

    def in_io_thread(self, function: Callable[..., None], *arguments: Any) -> None:
        """Calls a function in the thread that hears messages, soon. Safe from any thread."""
        self._io_loop.add_callback(function, *arguments)


def forget_text(metadata: Any) -> None:
    """Forgets what the metadata of a request have of what it shows: all its text, copied for every
    new piece."""
    metadata["stdout"] = metadata["stderr"] = ""
    metadata["outputs"] = []
