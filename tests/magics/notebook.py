"""A notebook as a Jupyter kernel sees it: cells go in, messages come out."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from tests.support import cells

Messages = list[dict[str, Any]]
PLOTLY = "application/vnd.plotly.v1+json"
#: It prints too.
TRAIN = cells.TRAIN.replace("model = ", "print('building')\nmodel = ", 1)


class Notebook:
    """Types cells into a kernel."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client

    def begin(self, cell: str) -> str:
        return str(self.client.execute(cell))

    def messages_until(
        self, msg_id: str, enough: Callable[[Messages], object], seconds: float = 180
    ) -> Messages:
        """All outputs of a cell until ``enough`` is true of them."""
        messages: Messages = []
        deadline = time.monotonic() + seconds
        while not enough(messages):
            message = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            if message["parent_header"].get("msg_id") == msg_id:
                messages.append(message)
        return messages

    def run(self, cell: str, seconds: float = 180) -> str:
        """Runs a cell to its end and returns what it shows as text."""
        return shown(self.messages_until(self.begin(cell), ended, seconds))


def ended(messages: Messages) -> bool:
    return any(m["content"].get("execution_state") == "idle" for m in messages)


def shown(messages: Messages) -> str:
    text = []
    for message in messages:
        content = message["content"]
        if message["msg_type"] == "stream":
            text.append(content["text"])
        elif message["msg_type"] in ("display_data", "execute_result", "update_display_data"):
            text.append(content["data"].get("text/plain", "") + "\n")
        elif message["msg_type"] == "error":
            text.append("\n".join(content["traceback"]) + "\n")
    return re.sub(r"\x1b\[[0-9;]*m", "", "".join(text))


@contextmanager
def kernel(folder: Path) -> Iterator[Notebook]:
    """A notebook with a kernel of its own, in a folder."""
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder))
    try:
        yield Notebook(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
