import pytest

from tnt_notebook.cluster.requests import execution


@pytest.fixture
def impatient(monkeypatch):
    """For ranks that will not answer: the notebook gives them up sooner."""
    monkeypatch.setattr(execution, "INTERRUPT_AFTER_S", 1.0)
    monkeypatch.setattr(execution, "GIVE_UP_AFTER_S", 3.0)
