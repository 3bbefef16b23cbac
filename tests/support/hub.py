"""A real JupyterHub for the tests, on a host with users of its own (`shared_host`).

    with shared_host("alice", "bob") as host, closing(Hub(host)) as jupyterhub:
        jupyterhub.log_in(page, "alice")

Its proxy, configurable-http-proxy, is a program for Node.js: `make proxy` installs it in the clone.
All of it ends with the host.
"""

import functools
import importlib.util
import json
import secrets
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import shared_host
from tests.support.rank_pool import ROOT
from tests.support.shared_host import SharedHost
from tests.support.waiting import eventually
from tnt_notebook.cluster.launch.ports import free_ports, undialled

PROXY = ROOT / ".local/proxy/node_modules/.bin/configurable-http-proxy"
_START_S = 180.0
_CONFIGURATION = """
c = get_config()  # noqa
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_ip = "127.0.0.1"
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.command = ["{proxy}"]
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api_port}"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "{password}"
c.Authenticator.allowed_users = {users}
c.Spawner.cmd = ["{singleuser}"]
c.Spawner.args = ["--LabApp.expose_app_in_browser=True"]
c.Spawner.environment = {{"JUPYTER_CONFIG_PATH": "{site}"}}
c.Spawner.default_url = "/lab"
c.Spawner.env_keep = ["PATH", "LANG", "TMPDIR", "PYTHONDONTWRITEBYTECODE", "SLURM_CONF"]
c.JupyterHub.services = [{{"name": "tests", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{
        "name": "tests",
        "services": ["tests"],
        "scopes": ["admin:servers", "access:servers", "read:users"],
    }}
]
"""
#: As docs/centres/jupyterhub.md has it.
_SERVER_CONFIGURATION = """
import os, signal
signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
c.KernelManager.shutdown_wait_time = 20.0
"""


class Hub:
    """One that runs, for the users of a host.

    Args:
        more: lines of its configuration.
        environment: of it, besides root's.

    Attributes:
        url: of its proxy.
        host: its machine, with its users.

    Raises:
        RuntimeError: it did not start; with what it wrote.
    """

    def __init__(
        self, host: SharedHost, more: str = "", environment: Mapping[str, str] | None = None
    ) -> None:
        self.host = host
        self._password, self._token = secrets.token_hex(8), secrets.token_hex(16)
        port, hub_port, api_port = free_ports(3, *(undialled() or (10_000, 30_000)))
        self.url = f"http://127.0.0.1:{port}"
        self._folder, site = (host.folder / f"{name}-{port}" for name in ("hub", "etc"))
        self._folder.mkdir(mode=0o700)
        site.mkdir()
        (site / "jupyter_server_config.py").write_text(_SERVER_CONFIGURATION)
        (site / "tnt_config.py").write_text(
            "c.ClusterDefaults.keep = 1.0\nc.ClusterDefaults.preload = 'nothing'\n"
        )
        configuration = _CONFIGURATION.format(
            site=site, port=port, hub_port=hub_port, api_port=api_port, proxy=PROXY,
            password=self._password, token=self._token, users=set(host.uids),
            singleuser=Path(sys.executable).with_name("jupyterhub-singleuser"),
        )  # fmt: skip
        (self._folder / "jupyterhub_config.py").write_text(configuration + more)
        with (self._folder / "log").open("w") as log:
            self._process = host.popen(
                [sys.executable, "-m", "jupyterhub", "-f", "jupyterhub_config.py"],
                cwd=self._folder, env={**host.environment(), **(environment or {})},
                stdout=log, stderr=log,
            )  # fmt: skip
        eventually(self._answers, _START_S)

    def log(self) -> str:
        """What it wrote."""
        return (self._folder / "log").read_text()

    def log_in(self, page: Any, user: str) -> None:
        """As a person does, in a page of a browser; their server starts."""
        page.goto(f"{self.url}/hub/login")
        page.get_by_label("Username").fill(user)
        page.get_by_label("Password").fill(self._password)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{self.url}/user/{user}/lab**", timeout=1000 * _START_S)

    def stop_server(self, user: str) -> None:
        """Stops a user's server, and returns when that has ended."""
        self.ask("DELETE", f"/hub/api/users/{user}/server")
        eventually(lambda: not self._server(user), _START_S)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What the hub or a user's server (``/user/NAME/...``) answers to one that may do all."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self._token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            said = f"{method} {path}: {error.code} {error.read().decode()[:500]}"
            raise AssertionError(f"{said}\n{self.log()[-3000:]}") from None
        return json.loads(text) if text else None

    def close(self) -> None:
        """Ends it, and the servers of its users."""
        self._process.terminate()
        self._process.wait(30)

    def _server(self, user: str) -> dict[str, Any]:
        return self.ask("GET", f"/hub/api/users/{user}")["servers"].get("", {})

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"JupyterHub did not start:\n{self.log()[-3000:]}")
        try:
            with urllib.request.urlopen(f"{self.url}/hub/api", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
            return False


@functools.cache
def unavailable() -> str:
    """Why there can be no hub here, as a sentence; empty where there can be."""
    if absent := [n for n in ("jupyterhub", "batchspawner") if importlib.util.find_spec(n) is None]:
        return f"{' and '.join(absent)} is not installed (the extra `test`)."
    if shutil.which("node") is None or not PROXY.exists():
        return "JupyterHub's proxy is not installed: make proxy (it needs Node.js and npm)."
    return shared_host.unavailable()
