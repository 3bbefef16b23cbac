"""ipyparallel's launchers, without what they do to the output."""

from __future__ import annotations

from typing import Any

from ipyparallel.cluster.launcher import BaseLauncher, LocalControllerLauncher, MPIEngineSetLauncher


class _KeepsOutput(BaseLauncher):
    def _log_output(self, stop_data: Any = None) -> None:
        """ipyparallel removes a process's output when it ends; the run folder keeps it."""


class Controller(_KeepsOutput, LocalControllerLauncher):
    """The controller, on this machine."""


class MpiEngines(_KeepsOutput, MPIEngineSetLauncher):
    """Engines started by one mpiexec that runs on this machine."""
