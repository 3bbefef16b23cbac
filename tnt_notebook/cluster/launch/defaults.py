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
from traitlets import Dict, Enum, Float, Integer, List, TraitError, TraitType, Unicode
from traitlets.config import Config, Configurable
from traitlets.config.loader import ConfigFileNotFound, JSONFileConfigLoader, PyFileConfigLoader

from tnt_notebook.cluster.launch.options import OPTIONS, Option
from tnt_notebook.errors import ClusterError

NAME = "tnt_config"
_LOADERS = {".json": JSONFileConfigLoader, ".py": PyFileConfigLoader}
_TRAITS = {int: Integer, float: Float, str: Unicode}


def _trait(option: Option) -> TraitType[Any, Any]:
    if option.kind in (tuple, dict):
        trait: TraitType[Any, Any] = (List if option.kind is tuple else Dict)(Unicode())
    elif option.choices:
        trait = Enum(option.choices, None, allow_none=True)
    else:
        trait = _TRAITS[option.kind](None, allow_none=True)
    return trait.tag(config=True)


ClusterDefaults: type[Configurable] = type(
    "ClusterDefaults",
    (Configurable,),
    {name: _trait(option) for name, option in OPTIONS.items() if option.site},
)


def load() -> dict[str, Any]:
    """What was chosen here, by the names of the options.

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
                ours = isinstance(error, TraitError | ClusterError)
                kind = "" if ours else f"{type(error).__name__}: "
                raise ClusterError(f"{folder}/{NAME}{suffix}: {kind}{error}") from None
    return _chosen(config)


def _chosen(config: Config) -> dict[str, Any]:
    settled = ClusterDefaults(config=config)
    values = {name: getattr(settled, name) for name in settled.trait_names(config=True)}
    return {name: value for name, value in values.items() if value not in (None, [], {})}


def _check(config: Config) -> None:
    """Raises where a file holds what nobody asks for, or a value that cannot be."""
    for section in config:
        if section != "ClusterDefaults":
            raise ClusterError(f"there is no {section!r}, only ClusterDefaults.")
    known = ClusterDefaults.class_trait_names(config=True)
    chosen = config.get("ClusterDefaults", {})
    if not isinstance(chosen, Config):
        raise ClusterError("ClusterDefaults must have names and values.")
    for name in chosen:
        if name not in known:
            raise ClusterError(
                f"ClusterDefaults has no {name!r}; it has {', '.join(sorted(known))}."
            )
    for name, value in _chosen(deepcopy(config)).items():  # settles what is to be appended to later
        OPTIONS[name].check(value, f"{name} = ")
