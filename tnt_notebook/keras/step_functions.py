"""What Keras's ``fit``, ``evaluate`` and ``predict`` keep on a model, and call in their loops.

Where Keras 3.10 to 3.15 differ, the function says so.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer
from keras.src.utils.python_utils import pythonify_logs

from tnt_notebook.keras.state import is_of_keras

#: The methods that the loops call, or trace, by way of the model itself. The last one makes the
#: logs of an epoch of those of its last step.
STEPS = ("train_step", "test_step", "predict_step", "_get_metrics_result_or_logs")

#: What they are traced to.
FUNCTIONS = ("train_function", "test_function", "predict_function")

#: Whether XLA compiles these; None: not decided yet.
XLA = "_jit_compile"

_OF_MODEL = (*STEPS, *FUNCTIONS, XLA)

#: What Keras gives to each callback by itself.
GIVEN_TO_CALLBACKS = ("_model", "model", "params", "validation_data")


def functions_of(model: keras.Model) -> dict[str, Any]:
    """What a model itself, not its class, has of :data:`STEPS`, :data:`FUNCTIONS`, :data:`XLA`."""
    return {name: value for name, value in vars(model).items() if name in _OF_MODEL}


def set_functions(model: keras.Model, functions: Mapping[str, Any]) -> None:
    """Gives a model these, and none else of :func:`functions_of`."""
    for name in _OF_MODEL:
        if name not in functions:
            vars(model).pop(name, None)
        elif name in STEPS:
            vars(model)[name] = functions[name]
        else:
            setattr(model, name, functions[name])


def directly(
    model: keras.Model, step: Callable[[Any], Any], function: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Does what Keras's train or test ``function`` of a ``step`` does, with less around the graph:
    0.1 ms a call for 0.4. The graph returns what the step does, not a tf.experimental.Optional of
    that, and is looked up once for each iterator, not for each batch. Where an execution makes
    several steps, or none is traced, and for input that is no iterator of tf.data, it is Keras's.
    """
    if model.run_eagerly or model.steps_per_execution != 1:
        return function

    def on_next(iterator: tf.data.Iterator) -> Any:
        batch = keras.tree.map_structure(
            lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf,
            iterator.get_next(),
        )
        return step(batch)

    traced = tf.function(on_next, reduce_retracing=True, autograph=False)
    # It would be told of the first call for each iterator only, and warn that most of them trace.
    traced._omit_frequent_tracing_warning = True
    latest: Any = None  # a weak reference
    graph: Any = None

    def run(iterator: Any) -> Any:
        nonlocal latest, graph
        if latest is not None and iterator is latest():
            return graph._call_flat([iterator._iterator_resource], graph.captured_inputs)
        if not isinstance(iterator, tf.data.Iterator):
            return function(iterator)
        outputs = traced(iterator)
        graph, latest = traced.get_concrete_function(iterator), weakref.ref(iterator)
        # In the order in which they were met, which graph.variables has not.
        found = {id(variable.handle): variable for variable in graph.variables}
        met = (found.get(id(outer)) for outer, _ in graph.graph.captures)
        run.variables = [one for one in met if one is not None]  # type: ignore[attr-defined]
        return outputs

    return run


def variables_of(function: Any) -> list[tf.Variable]:
    """What a function of :func:`directly` reads or assigns, in the order in which it was traced;
    nothing before its first call, or of others."""
    return list(getattr(function, "variables", ()))


def compiled_as(model: keras.Model) -> Any:
    """What compile() was given: another object after each."""
    return getattr(model, "_compile_config", None)


def build_symbolically(model: keras.Model, batch: Any) -> None:
    """Creates the variables of a model, its metrics and optimizer, for a batch given in
    tf.TensorSpec."""
    model._symbolic_build(data_batch=batch)


def own_step(model: keras.Model, phase: str) -> Callable[[Any], Any] | None:
    """The step of a model's own class with which it trains, is tested or predicts; None where that
    is Keras's."""
    kind = getattr(type(model), f"{phase}_step")
    return None if is_of_keras(kind) else kind.__get__(model)


def lacks_metrics(model: keras.Model) -> bool:
    """Whether what compile() was given has no variables yet: metrics, or those of a loss."""
    given = model._compile_metrics, model._compile_loss
    return any(one is not None and not one.built for one in given)


def build_by_tracing(step: Callable[[Any], Any], batch: Any) -> None:
    """Creates the variables of whatever a step uses, as Keras does where it traces one."""
    tf.function(step, autograph=False).get_concrete_function(batch)


def in_order(model: keras.Model, logs: Mapping[str, Any]) -> Any:
    """Logs as a list in the order of ``metrics_names``; a number if there is one only."""
    return model._flatten_metrics_in_order(logs)


def resets_metrics(on_batch: Callable[..., Any]) -> bool:
    """Whether Keras's ``train_on_batch`` or ``test_on_batch`` forgets what metrics had counted. The
    first does so from Keras 3.15 on."""
    return "reset_metrics" in inspect.unwrap(on_batch).__code__.co_names


def in_python(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Logs whose tensors are numbers."""
    return pythonify_logs(logs)


def logs_of_epoch(model: keras.Model, logs: Any) -> Any:
    """What Keras makes of the logs of the last step: results of metrics, where it has all."""
    return type(model)._get_metrics_result_or_logs(model, logs)


def initial_epoch(model: keras.Model) -> int:
    """The epoch at which ``fit`` begins; a BackupAndRestore changes it."""
    return model._initial_epoch


def set_initial_epoch(model: keras.Model, epoch: int) -> None:
    model._initial_epoch = epoch


def is_validation_of_fit(arguments: Mapping[str, Any]) -> bool:
    """Whether these are the arguments with which ``fit`` calls ``evaluate``."""
    return bool(arguments.get("_use_cached_eval_dataset"))


def call_in_turn(callbacks: keras.callbacks.CallbackList) -> None:
    """Makes callbacks run in this thread, after each batch, also where none needs its logs."""
    callbacks._async_train = callbacks._async_test = callbacks._async_predict = False


def choose_monitor(callback: keras.callbacks.Callback) -> None:
    """Makes an EarlyStopping or its like choose whether less or more of its metric is better."""
    callback._set_monitor_op()


class EpochIterator(trainer.TFEpochIterator):
    """Keras's iterator over the batches of epochs, of which a subclass may change how it reads. Its
    ``data_adapter`` is told when epochs begin and end."""

    data_adapter: Any

    def batches(self) -> Any:
        """Called when it begins with its data anew: the dataset to iterate over."""
        return super()._get_iterator()

    def steps(self) -> Iterator[tuple[int, int, Any]]:
        """Of an epoch, for each call of a train or test function the first and the last step that
        it makes, and the iterator that it is given."""
        for *self._numbers, iterator in super()._enumerate_iterator():
            first = self._numbers[0]
            yield first, first + self.steps_per_execution - 1, iterator

    @property
    def goes_on(self) -> bool:
        """Whether the next epoch takes up the data where the last has left it."""
        return self.steps_per_epoch is not None and self._current_iterator is not None

    @property
    def steps_seen(self) -> int:
        """Batches that were taken from the data since it was begun with."""
        return self._steps_seen

    def go_on_with(self, batches: Any, seen: int) -> None:
        """Takes up data of which so many batches were seen."""
        self._current_iterator, self._steps_seen = iter(batches), seen

    def _get_iterator(self) -> Any:
        return self.batches()

    def _enumerate_iterator(self) -> Iterator[tuple[Any, ...]]:
        # Keras 3.10 wants the first step only, later versions the last one too.
        for _, _, iterator in self.steps():
            yield *self._numbers, iterator


@contextlib.contextmanager
def iterating_by(make: Callable[[Any], Callable[..., EpochIterator] | None]) -> Iterator[None]:
    """Inside, ``fit`` and ``evaluate`` iterate by the class that ``make`` gives for their data;
    None: by Keras's own."""
    own = trainer.TFEpochIterator

    def iterator(**arguments: Any) -> Any:
        return (make(arguments["x"]) or own)(**arguments)

    trainer.TFEpochIterator = iterator
    try:
        yield
    finally:
        trainer.TFEpochIterator = own
