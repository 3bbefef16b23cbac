"""What a site or a person has chosen for all clusters: a file, read by traitlets.

The files are called ``tnt_config.py`` or ``tnt_config.json`` and lie where Jupyter looks for
configuration (``jupyter --paths``): system-wide, beside the Python, or in the user's folder, which
has the last word. What is typed in the notebook goes before all of them::

    c.ClusterDefaults.launcher = "slurm"
    c.ClusterDefaults.partition = "gpu"
    c.ClusterDefaults.modules = ["cuda/12.4"]
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from jupyter_core.paths import jupyter_config_path
from traitlets import Dict, Enum, Float, Integer, List, TraitError, Unicode
from traitlets.config import Config, Configurable
from traitlets.config.loader import ConfigFileNotFound, JSONFileConfigLoader, PyFileConfigLoader

from tnt_notebook.choices import LAUNCHERS
from tnt_notebook.errors import ClusterError

NAME = "tnt_config"
_LOADERS = {".json": JSONFileConfigLoader, ".py": PyFileConfigLoader}


class ClusterDefaults(Configurable):
    """Options of ``%tnt_cluster start`` that need not be typed."""

    launcher = Enum(LAUNCHERS, None, allow_none=True, help="what starts the engines").tag(
        config=True
    )
    nodes = Integer(None, allow_none=True, help="how many nodes").tag(config=True)
    per_node = Integer(None, allow_none=True, help="ranks on each node").tag(config=True)
    gpus = Integer(None, allow_none=True, help="GPUs per node").tag(config=True)
    cores = Integer(None, allow_none=True, help="cores per rank").tag(config=True)
    time = Unicode(None, allow_none=True, help="time limit of a job: 12h").tag(config=True)
    partition = Unicode(None, allow_none=True, help="partition or queue").tag(config=True)
    account = Unicode(None, allow_none=True, help="who pays").tag(config=True)
    modules = List(Unicode(), help="loaded before engines start").tag(config=True)
    env = Dict(Unicode(), help="variables of the engines").tag(config=True)
    extra = List(Unicode(), help="more options of the batch system, or of mpiexec").tag(config=True)
    hostfile = Unicode(None, allow_none=True, help="hosts of --launcher ssh").tag(config=True)
    keep = Float(
        0.25, min=0, help="hours that engines live on when the notebook's kernel has ended"
    ).tag(config=True)
    interface = Unicode(
        None, allow_none=True, help="network interface by which engines reach the notebook"
    ).tag(config=True)
    ssh = Unicode(None, allow_none=True, help="program that reaches hosts as ssh does").tag(
        config=True
    )
    fit_hours = Float(
        168.0, min=0, help="hours that a fit may go on when the notebook's kernel has ended"
    ).tag(config=True)
    silence = Float(
        2.5,
        min=1,
        help="seconds without a sign of life until a rank on another host counts as dead",
    ).tag(config=True)
    queue_hours = Float(24.0, min=0, help="how long a job may wait in its queue").tag(config=True)


def load() -> ClusterDefaults:
    """The defaults that hold here.

    Raises:
        ClusterError: a file is broken; it says which, and why.
    """
    config = Config()
    for folder in reversed(jupyter_config_path()):  # the last one has the last word
        for suffix, loader in _LOADERS.items():
            try:
                loaded = loader(NAME + suffix, folder).load_config()
                _check(loaded)
                config.merge(loaded)
            except ConfigFileNotFound:
                continue
            except (Exception, SystemExit) as error:  # whatever a file of Python raises
                kind = "" if isinstance(error, _Wrong | TraitError) else f"{type(error).__name__}: "
                raise ClusterError(f"{folder}/{NAME}{suffix}: {kind}{error}") from None
    return ClusterDefaults(config=config)


def _check(config: Config) -> None:
    """Raises where a file holds what nobody asks for, or a value of the wrong kind."""
    for section in config:
        if section != "ClusterDefaults":
            raise _Wrong(f"there is no {section!r}, only ClusterDefaults.")
    known = ClusterDefaults.class_trait_names(config=True)
    chosen = config.get("ClusterDefaults", {})
    if not isinstance(chosen, Config):
        raise _Wrong("ClusterDefaults must have names and values.")
    for name in chosen:
        if name not in known:
            raise _Wrong(f"ClusterDefaults has no {name!r}; it has {', '.join(sorted(known))}.")
    ClusterDefaults(config=deepcopy(config))  # it settles what is to be appended to later


class _Wrong(ValueError):
    """A file says something that means nothing."""


def completed(given: dict[str, Any], defaults: ClusterDefaults) -> dict[str, Any]:
    """What was typed, and for the rest what was chosen before."""
    names = ClusterDefaults.class_trait_names(config=True)
    chosen = {name: getattr(defaults, name) for name in names}
    options = {name: value for name, value in chosen.items() if value not in (None, [], {})}
    if "env" in given:
        given = {**given, "env": {**options.get("env", {}), **given["env"]}}
    return {**options, **given}
