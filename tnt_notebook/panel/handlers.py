"""The addresses under which a Jupyter server answers the panel, for who may use the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from tnt_notebook.errors import TntError


class PanelHandler(APIHandler):
    """Answers with what a function finds on disk, without holding up the server meanwhile."""

    def initialize(self, answer: Callable[..., Any], named: Sequence[str] = ()) -> None:
        self._answer, self._named = answer, named

    @web.authenticated
    async def get(self) -> None:
        asked = [self.get_query_argument(name) for name in self._named]
        try:
            found = await asyncio.to_thread(self._answer, *asked)
        except (TntError, ValueError) as error:
            raise web.HTTPError(400, reason=str(error)) from None
        self.finish(json.dumps(found))


def handlers(base_url: str) -> list[tuple[str, type[PanelHandler], dict[str, Any]]]:
    """What to register with a server: address, handler, and what it answers with."""

    def at(name: str) -> str:
        return url_path_join(base_url, "tnt", name)

    return [
        (at("clusters"), PanelHandler, {"answer": _clusters}),
        (at("options"), PanelHandler, {"answer": _options}),
        (at("log"), PanelHandler, {"answer": _log, "named": ("cluster", "which")}),
    ]


# Loaded when first asked for: a server starts as fast as without the panel.


def _clusters() -> Any:
    from tnt_notebook.panel.overview import overview

    return overview()


def _options() -> Any:
    from tnt_notebook.panel.overview import options_of_start

    return options_of_start()


def _log(cluster: str, which: str) -> Any:
    from tnt_notebook.panel.overview import log

    return log(cluster, which)
