"""Records real runs whose limit is known, for ``test_recorded_runs.py``: two ranks, some seconds
each. Run again after a change of what ranks tell::

    .venv/bin/python -m tests.telemetry.record_runs [NAME ...]
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.rank_pool import RankPool

RECORDED = Path(__file__).parent / "recorded"
SECONDS = 9.0
#: What conclusions are drawn from.
KEPT = ("breakdown", "step_s", "setup", "rate", "input", "step_trace")
COMMON = ("v", "seq", "time", "start", "phase", "state", "elapsed", "sharing", "spent", "samples")


def dense(width: int, layers: int, batch: int, **how: Any) -> list[dict[str, Any]]:
    """A fit of a dense model until `SECONDS` are over, on arrays unless `data` makes something
    else; its frames on rank 0."""
    import keras
    import numpy as np

    import tnt_notebook as tnt

    keras.utils.set_random_seed(1)
    inputs = x = keras.Input((width,))
    for number in range(layers):
        x = keras.layers.Dense(width, activation="relu", name=f"dense_{number}")(x)
        if number == 0 and "slow" in how:
            x = keras.layers.Lambda(how["slow"], output_shape=(width,), name="slow")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, name="last")(x))
    model.compile("sgd", "mse")
    samples = np.random.default_rng(1).normal(size=(50 * batch, width)).astype("float32")
    given: dict[str, Any] = {"x": samples, "y": samples[:, :1], "batch_size": batch}
    if "data" in how:
        given = {"x": how["data"](samples, batch)}
    frames: list[dict[str, Any]] = []
    about = {name: how[name] for name in ("pipeline", "exchange") if name in how}
    with tnt.distributed(report=frames.append, **about):
        for_some_seconds = _until(time.monotonic() + SECONDS)
        model.fit(
            **given,
            epochs=10_000,
            verbose=0,
            callbacks=[*how.get("callbacks", []), for_some_seconds],
        )
    return frames


def _until(end: float) -> Any:
    import keras

    class Until(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = time.monotonic() > end

    return Until()


def _pause(seconds: float, rank: int | None = None) -> Callable[[Any], Any]:
    import tensorflow as tf

    import tnt_notebook as tnt

    def after(x: Any) -> Any:
        def wait() -> Any:
            if rank in (None, tnt.world().rank):
                time.sleep(seconds)  # the slow work that is to be found
            import numpy as np

            return np.int64(0)

        with tf.control_dependencies([tf.numpy_function(wait, [], tf.int64)]):
            return tf.identity(x)

    return after


def short_steps() -> list[Any]:
    return dense(8, 1, 32)


def slow_input() -> list[Any]:
    import tensorflow as tf

    def data(samples: Any, batch: int) -> Any:
        made = tf.data.Dataset.from_tensor_slices((samples, samples[:, :1])).batch(batch)
        return made.map(lambda x, y: (_pause(0.02)(x), y))

    return dense(256, 2, 128, data=data)


def slow_rank() -> list[Any]:
    return dense(256, 2, 128, slow=_pause(0.02, rank=1))


def slow_rank_of_a_server() -> list[Any]:
    return dense(256, 2, 128, slow=_pause(0.02, rank=1), exchange="server:staleness=50")


def busy_rank() -> list[Any]:
    import keras

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.02)  # as above

    return dense(256, 2, 128, callbacks=[Slow()])


def uneven_stages() -> list[Any]:
    import tnt_notebook as tnt

    return dense(768, 5, 512, pipeline=tnt.Pipeline(2, micro_batches=8, cut_at=["dense_4"]))


def bubble() -> list[Any]:
    import tnt_notebook as tnt

    return dense(768, 6, 512, pipeline=tnt.Pipeline(2, micro_batches=1, cut_at=["dense_3"]))


def exchange() -> list[Any]:
    return dense(1536, 3, 8)


def nothing() -> list[Any]:
    return dense(768, 3, 2048)


RUNS = (
    short_steps, slow_input, slow_rank, slow_rank_of_a_server, busy_rank, uneven_stages, bubble,
    exchange, nothing,
)  # fmt: skip


class _Pool(RankPool):
    close = RankPool.stop


def main(names: list[str]) -> None:
    from tests.telemetry import record_runs  # as ranks can import it, which "__main__" they cannot

    RECORDED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(_Pool(Path(folder))) as ranks:
        for run in record_runs.RUNS:
            if names and run.__name__ not in names:
                continue
            frames = ranks.run(2, run)[0]
            last = frames[-1]
            kept = [f for f in frames if "breakdown" in f and f is not last]
            lines = []
            for frame in [*kept, last]:
                row = {name: frame[name] for name in (*COMMON, *KEPT) if name in frame}
                if frame is not last and frame is not kept[-1]:
                    row.pop("step_trace", None)
                lines.append(json.dumps(row, separators=(",", ":")) + "\n")
            (RECORDED / f"{run.__name__}.jsonl").write_text("".join(lines))
            print(run.__name__, len(lines), "frames")


if __name__ == "__main__":
    main(sys.argv[1:])
