"""Figures of fits in the files of trackers, read by the trackers' own tools."""

from __future__ import annotations

import importlib
import math
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.util.tensor_util import make_ndarray
from wandb.proto.wandb_internal_pb2 import Record

import tnt_notebook as tnt
from tnt_notebook import comm
from tnt_notebook.parallel.track.logged import check_installed, figures_of
from tnt_notebook.plan.fit_options import FitOptions
from tnt_notebook.plan.track import Track

EPOCHS = 3


class Raises(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise OSError("the disk is full")


def fitted(track: str, folder: str, how: str = "", stages: int = 0) -> dict[str, Any]:
    """A fit that is logged, and its history on this rank."""
    os.chdir(folder)
    keras.utils.set_random_seed(1)
    names = ("first", "second")
    model = keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(4, name=n) for n in names)])
    model.compile("sgd", "mse")
    x = np.ones((80, 4), "float32")
    if how == "stopped":
        x[20] = np.nan
    options: dict[str, Any] = {"track": track}
    if stages:
        options["pipeline"] = tnt.Pipeline(stages, 2, cut_at=["second"])
    model = tnt.Model(model, **options)
    callbacks = [Raises()] if how == "failed" else []
    fit = {"batch_size": 16, "epochs": EPOCHS, "verbose": 0, "callbacks": callbacks}
    try:
        return model.fit(x, x, validation_data=(x[:20], x[:20]), **fit).history
    except BaseException as error:
        if not getattr(error, "peers_know", False):
            comm.abort(f"rank {comm.rank()}: {type(error).__name__}")
        comm.world().recover()
        return {}


def tensorboard(folder: Path) -> tuple[str, dict[str, dict[int, float]]]:
    """How the only run ended, and its figures by step."""
    (run,) = folder.glob("logs/fit-*")
    board = EventAccumulator(str(run)).Reload()
    found = {
        tag: {e.step: float(make_ndarray(e.tensor_proto)) for e in board.Tensors(tag)}
        for tag in board.Tags()["tensors"]
        if board.SummaryMetadata(tag).plugin_data.plugin_name == "scalars"
    }
    content = board.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    told = HParamsPluginData.FromString(content).session_start_info.hparams
    assert told["ranks"].number_value == 2 and told["batch_size"].number_value == 16
    (state,) = board.Tensors("tnt/state")
    return state.tensor_proto.string_val[0].decode(), found


def mlflow(folder: Path) -> tuple[str, dict[str, dict[int, float]]]:
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    (run,) = client.search_runs(["0"])
    found = {
        name: {m.step: m.value for m in client.get_metric_history(run.info.run_id, name)}
        for name in run.data.metrics
    }
    assert (run.data.params["ranks"], run.data.params["batch_size"]) == ("2", "16")
    state = {"FINISHED": "finished", "KILLED": "stopped", "FAILED": "failed"}
    return state[run.info.status], found


def wandb(folder: Path) -> tuple[str, dict[str, dict[int, float]]]:
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    records = [Record.FromString(one) for one in records_of(file.read_bytes())]
    (code,) = (r.exit.exit_code for r in records if r.HasField("exit"))
    found: dict[str, dict[int, float]] = {}
    state = ""
    for record in records:
        for item in record.history.item:
            name = "/".join([item.key] if item.key else item.nested_key)
            found.setdefault(name, {})[record.history.step.num] = number(item.value_json)
        for item in record.summary.update:
            if "tnt/state" in (item.key, *item.nested_key):
                state = item.value_json.strip('"')
    (begun,) = (r.run for r in records if r.HasField("run"))
    told = {update.key: update.value_json for update in begun.config.update}
    assert (told["ranks"], told["batch_size"]) == ("2", "16")
    assert code == (state == "failed")
    return state, {n: by_step for n, by_step in found.items() if not n.startswith("_")}


def number(text: str) -> float:
    return float(text.strip('"'))  # "NaN" has quotes


def records_of(data: bytes) -> Iterator[bytes]:
    """Of a file of W&B: a header, and records in blocks, as LevelDB writes its log."""
    at, record = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


@pytest.mark.parametrize(("how", "stages"), [("finished", 2), ("stopped", 0), ("failed", 0)])
def test_what_trackers_have_of_a_fit(ranks, tmp_path, how, stages):
    there, track = tmp_path, "tensorboard,wandb,mlflow"
    if how == "failed":
        there, track = tmp_path / "there", "tensorboard:there/logs,wandb:there,mlflow:there"
    told = ranks.run(2, fitted, track, str(tmp_path), how, stages)
    assert there == tmp_path or [path.name for path in tmp_path.iterdir()] == ["there"]
    for read in (tensorboard, wandb, mlflow):
        state, found = read(there)
        assert state == how
        known = {"finished": EPOCHS, "failed": 2}.get(how) or len(told[0]["loss"])
        epochs = [*range(1, known + 1)]
        for name in ("loss", "val_loss", "tnt/samples_per_s", "tnt/memory_bytes"):
            assert list(found[name]) == epochs, name
        if how == "finished":
            assert list(found["loss"].values()) == pytest.approx(told[0]["loss"])
            assert list(found["val_loss"].values()) == pytest.approx(told[0]["val_loss"])
            assert set(found["tnt/run/bubble"]) == set(found["tnt/run/exchange"]) == {3}
            assert 0 <= found["tnt/run/bubble"][3] <= 1
            assert found["tnt/run/step_s"][3] > 0 and found["tnt/run/samples_per_s"][3] > 0
        if how == "stopped":
            assert math.isnan(found["loss"][1])
        assert all(value > 1 << 20 for value in found["tnt/memory_bytes"].values())


def without_a_package(folder: str) -> str:
    os.chdir(folder)
    found = sys.modules.pop("mlflow", None)
    paths, sys.path[:] = sys.path[:], [p for p in sys.path if not Path(p, "mlflow").is_dir()]
    Path("mlflow").mkdir(exist_ok=True)  # of runs, which is no package
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        check_installed(comm.world(), Track.of("tensorboard,mlflow"))
    except tnt.errors.TrackerError as error:
        return str(error)
    finally:
        sys.path[:] = paths
        if found is not None:
            sys.modules["mlflow"] = found
    return ""


def test_a_missing_package_is_said_on_all_ranks(ranks, tmp_path):
    told = ranks.run(2, without_a_package, str(tmp_path))
    assert told[0] == told[1] and "pip install " in told[0] and "mlflow on rank 0" in told[0]


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        ("mlfow", "No tracker 'mlfow': did you mean mlflow"),
        ("wandb,wandb:here", "names wandb twice"),
        ("mlflow:", "no folder after mlflow:"),
    ],
)
def test_what_is_no_tracker(typed, error):
    with pytest.raises(ValueError, match=error):
        FitOptions(track=typed)


def test_the_first_step_of_an_epoch_stands_for_no_other():
    parts = [[0.0, 0.5, 0.0, 0.0, 0.5, 0.0, 0.0]]
    frame: Any = {"breakdown": parts, "memory": [1, 3]}
    assert figures_of(frame) == {"memory_bytes": 3 << 20}
    assert figures_of({**frame, "step_s": 1.0})["exchange"] == 0.5
