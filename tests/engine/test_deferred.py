"""What ``import keras`` would load for hardly anybody comes with its first use."""

import importlib
import subprocess
import sys

import pytest

from tnt_notebook.engine import deferred


@pytest.fixture
def around(tmp_path, monkeypatch):
    """A package that imports a module of its own, which may find nothing to work with."""
    (tmp_path / "around").mkdir()
    (tmp_path / "around" / "__init__.py").write_text("from around import inner as inner")
    (tmp_path / "around" / "inner.py").write_text("""
import os
if "BROKEN" in os.environ:
    raise ImportError("no such library")
used = 42
""")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    deferred.defer(["around.inner"])
    yield importlib.import_module("around")
    for name in ("around", "around.inner"):
        del sys.modules[name]


def star(module):
    names = {}
    exec("from around.inner import *", names)
    return names["used"]


@pytest.mark.parametrize(
    "use", [lambda m: m.used, lambda m: vars(m)["used"] if "used" in dir(m) else None, star]
)
def test_a_module_is_loaded_with_its_first_use(around, use):
    inner = around.inner
    # As those see it who look through all modules.
    assert inner.__file__.endswith("inner.py") and not hasattr(inner, "__wrapped__")
    assert "used" not in vars(inner)
    assert use(inner) == 42
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = inner.other


def test_what_loading_raises_is_raised_with_each_use(around, monkeypatch):
    monkeypatch.setenv("BROKEN", "1")
    for _ in range(2):
        with pytest.raises(ImportError, match="no such library"):
            _ = around.inner.used
    monkeypatch.delenv("BROKEN")
    assert around.inner.used == 42


KERAS = """
import sys
from tnt_notebook.engine import deferred
deferred.defer()
import keras
assert keras.wrappers and "sklearn" not in sys.modules
from keras.wrappers import SKLearnClassifier
assert issubclass(SKLearnClassifier, sys.modules["sklearn"].base.ClassifierMixin)
"""


def test_keras_comes_without_scikit_learn():
    subprocess.run([sys.executable, "-c", KERAS], check=True, timeout=120)
