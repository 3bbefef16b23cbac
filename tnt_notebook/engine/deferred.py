"""Modules that are loaded when something of them is used, not when something around them is.

``import keras`` imports ``keras.wrappers``, and that scikit-learn and SciPy's statistics where they
are installed: a quarter of what all of Keras and TensorFlow takes, on each rank, for what hardly
any cell uses.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

#: Modules that nothing needs while what is around them is loaded.
DEFERRED = ("keras.wrappers",)


def defer(names: Collection[str] = DEFERRED) -> None:
    """From now on, the code of these modules runs when one of their names is first asked for, as by
    ``from keras.wrappers import SKLearnClassifier``; not again for those that are loaded."""
    sys.meta_path.insert(0, _Finder(frozenset(names)))


class _Finder(MetaPathFinder):
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = _WhenUsed(spec.loader)
        return spec


class _WhenUsed(Loader):
    """Python's own LazyLoader runs a module also for those who only look through what is loaded, as
    ``inspect`` does, and TensorFlow with it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        def load() -> None:
            self._loader.exec_module(module)
            for name in ("__getattr__", "__dir__"):
                vars(module).pop(name, None)

        def attribute(name: str) -> Any:
            if name.startswith("__") and name != "__all__":
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            load()
            return getattr(module, name)

        def names() -> list[str]:
            load()
            return dir(module)

        vars(module).update(__getattr__=attribute, __dir__=names)
