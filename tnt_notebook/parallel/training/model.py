"""``tnt.Model``: a Keras model that trains on all ranks of a script started with mpiexec."""

from __future__ import annotations

import weakref
from typing import Any

import keras

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.graph import within_call
from tnt_notebook.parallel.checkpoint.config import Checkpoint
from tnt_notebook.parallel.checkpoint.run import RunCheckpoints
from tnt_notebook.parallel.consistency import seeds
from tnt_notebook.parallel.training.scope import METHODS, call, current_session, whole_world
from tnt_notebook.parallel.training.session import Session
from tnt_notebook.plan.fit_options import AUTO, FitOptions, takes_fit_options

_NO_LAYER = (
    "A tnt.Model trains a Keras model on all ranks; it is not a layer, and cannot be cloned or be "
    "part of another model. Give its Keras model, model.keras_model."
)


@takes_fit_options
class Model:
    """Wraps a Keras model; ``fit``, ``evaluate``, ``predict`` and ``*_on_batch`` use all ranks.

    Everything else is the Keras model's own: ``compile``, ``summary``, ``save``, attributes. All
    ranks must make the same calls. The batch size is that of the global batch, so that the result
    is that of one process, whatever the number of ranks.

    Args:
        model: any Keras model, compiled or not.
        checkpoint: keeps the state of training, and goes on from it; see ``tnt.Checkpoint``.
        options: of :class:`FitOptions`.

    Raises:
        CheckpointError: the folder of checkpoints cannot be used, or holds another run.
        ModelError: ``model`` is not a Keras model.
        ValueError: there is no such exchange, or ``bucket_mb`` is given beside it.

    Example::

        import tnt_notebook as tnt

        model = tnt.Model(keras.applications.ResNet50(weights=None, classes=10))
        model.compile("sgd", "sparse_categorical_crossentropy")
        model.fit(train, epochs=3, validation_data=val)
        model.save("resnet.keras")    # on every rank the same; save on rank 0
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        checkpoint: Checkpoint | None = None,
        **options: Any,
    ) -> None:
        if isinstance(model, Model):
            model = model.keras_model
        if not isinstance(model, keras.Model):
            raise ModelError(
                f"tnt.Model wraps a keras.Model, not a {type(model).__name__}. Is it a tf_keras "
                "model? Keras 2 is not supported."
            )
        session = Session(whole_world(), FitOptions(**options))
        seeds.synchronise(session.over)
        if checkpoint is not None:
            session.checkpoints = RunCheckpoints(session.over, checkpoint)
        has_options = checkpoint is not None or session.options != FitOptions()
        vars(self).update(keras_model=model, _session=session, _has_options=has_options)
        weakref.finalize(self, session.close)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["keras_model"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.keras_model, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if within_call():
            raise ModelError(_NO_LAYER)
        return self.keras_model(*args, **kwargs)

    def __repr__(self) -> str:
        # Keras shows this where it wants a layer.
        of = f"{self.keras_model!r} on {self._session.over.size} ranks"
        return f"<tnt.Model of {of}; the Keras model itself is its .keras_model>"

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None) -> Model:
        """Keras calls it where it copies or loads a layer, which this is not."""
        raise ModelError(_NO_LAYER)


def _through(name: str) -> Any:
    def method(self: Model, *args: Any, **kwargs: Any) -> Any:
        own, cell = self._session, current_session()
        if cell is not None and not self._has_options:
            own = cell
        elif cell is not None and cell.pipeline is not None and own.pipeline is None:
            raise ModelError(
                "This tnt.Model has options of its own and is not a pipeline, but the cell asks "
                "for one: give it pipeline=tnt.Pipeline(...), or leave --pipeline out."
            )
        elif cell is not None and cell.options.plan == AUTO and own.options.plan is None:
            raise ModelError(
                "This tnt.Model has options of its own, and the cell asks for a plan: give it "
                'plan="auto", or leave --plan out.'
            )
        with own.reported_by(cell or own):
            return call(own, name, self.keras_model, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"As ``keras.Model.{name}``, over all ranks."
    return method


for _name in METHODS:
    setattr(Model, _name, _through(_name))
