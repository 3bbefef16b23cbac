"""From what was typed, and what a site has chosen, to a request."""

from __future__ import annotations

import os
from typing import Any

from tnt_notebook.cluster import defaults, launch
from tnt_notebook.cluster.exchange import exchange_settings
from tnt_notebook.cluster.gpus import check_gpus
from tnt_notebook.cluster.request import Request, request
from tnt_notebook.errors import ClusterError


def asked(ranks: int | None, options: dict[str, Any]) -> tuple[Request, dict[str, Any]]:
    """What is asked for, checked, and how it is to be started.

    Args:
        ranks: how many; None where nodes or an allocation say it.
        options: what was typed; the rest is the site's.

    Raises:
        ClusterError: a wrong value, or a broken file of defaults.
    """
    settings = exchange_settings(options.pop("transport", None), options.pop("lanes", None))
    site = defaults.load()
    given = {name: value for name, value in options.items() if value is not None}
    if launch.allocation(os.environ) and "launcher" not in given and "hostfile" not in given:
        site.launcher = site.hostfile = None  # inside of a job its nodes are the ones to use
    options = defaults.completed(given, site)
    how = how_to_start(site, options.pop("interface", None))
    for name in ("ssh", "queue_hours", "fit_hours", "silence"):
        options.pop(name, None)
    launcher, inside = launch.chosen(
        options.pop("launcher", None), options.get("hostfile"), os.environ
    )
    if launcher != "ssh" and "hostfile" not in given:
        options.pop("hostfile", None)
    if launcher in ("local", "ssh") or inside:  # a site's defaults for jobs are for jobs
        for name in ("time", "partition", "account"):
            if name not in given:
                options.pop(name, None)
    if launcher == "local":
        if "nodes" not in given:
            options.pop("nodes", None)
        _check_this_machine(options.get("cores"), options.get("gpus"))
    if ranks is None and inside and not {"nodes", "per_node"} & set(given):
        ranks = launch.tasks(launcher, os.environ)
    return request(ranks, launcher=launcher, inside=inside, settings=settings, **options), how


def how_to_start(site: defaults.ClusterDefaults, interface: str | None) -> dict[str, Any]:
    """Arguments of :func:`tnt_notebook.cluster.start.start`."""
    return {
        "interface": interface or site.interface,
        "agent": site.ssh,
        "queue_s": site.queue_hours * 3600.0,
        "fit_s": site.fit_hours * 3600.0,
        "silence_s": site.silence,
    }


def _check_this_machine(cores: int | None, gpus: int | None) -> None:
    available = len(os.sched_getaffinity(0))
    if cores is not None and not 1 <= cores <= available:
        raise ClusterError(
            f"--cores {cores}: this machine offers 1 to {available} cores to a rank."
        )
    check_gpus(gpus)
