"""What a rank does in Keras's loops, by the hooks of callbacks."""

from __future__ import annotations

from tnt_notebook.telemetry import Phase, activities

_TRAINING = {
    "on_epoch_begin": "train", "on_train_batch_end": "train",
    "on_test_begin": "validate", "on_test_batch_end": "validate", "on_test_end": "epoch_end",
    "on_train_end": "epoch_end",
}  # fmt: skip
#: What begins after a hook; before, each step that is traced has said so.
_AFTER = {
    "fit": _TRAINING,
    "evaluate": {"on_test_batch_end": "evaluate"},
    "predict": {"on_predict_batch_end": "predict"},
}


def follow(phase: Phase, hook: str) -> None:
    """A hook of a run has been called."""
    if (name := _AFTER[phase].get(hook)) is None:
        return
    if hook == "on_epoch_begin" and activities.now() == "trace":
        return  # the first step is to come
    activities.begin(name)
