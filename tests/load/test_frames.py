"""Long training as the notebook sees it, in seconds: it keeps a bounded part."""

import os
import time

import psutil
import pytest

from tests.dashboard.steps import step_of_a_pipeline
from tests.support.cases import THOROUGH
from tests.support.waiting import eventually
from tnt_notebook import telemetry
from tnt_notebook.dashboard.reports.trace import Trace
from tnt_notebook.telemetry.bounds import MAX_FRAMES, RUN_BYTES
from tnt_notebook.telemetry.recorder import MAX_ROWS

FRAMES = 180_000 if THOROUGH else 8_000  # five a second, for ten hours or for half an hour
EPOCH = 20  # frames; so there are many epochs, which each of their frames lists
MAY_GROW = 100 << 20  # bytes; all frames would take more than 1 GB, for what they say of epochs

#: Rank 0 tells of 16 ranks as fast as the notebook takes it, by the way that frames of a fit take.
CELL = """
import keras, numpy as np, pathlib, time
from tnt_notebook import comm
from tnt_notebook.parallel.training.scope import current_session
from tnt_notebook.telemetry import Recorder

seen, report, begin = pathlib.Path({seen!r}), current_session().report, time.time() - 100_000
recorder = Recorder(16, "fit", 100_000, start=begin)
for count in range({frames} if comm.rank() == 0 else 0):
    now, (epoch, step) = begin + 0.2 * count, divmod(count, {epoch})
    logs = {{"loss": 1 / (count + 1), "accuracy": 0.5, "mse": 0.1}}
    recorder.step(epoch + 1, step + 1, {epoch}, logs, [32] * 16, now)
    if step == {epoch} - 1:
        recorder.epoch_end(epoch + 1, logs | {{"val_" + k: v for k, v in logs.items()}}, now)
    if count % 3 == 0:
        recorder.seen(trace, [1 << 30] * 16, rate=1e6)
    report(recorder.frame(now))
    while count - seen.stat().st_size > 500:
        time.sleep(0.01)
if comm.rank() == 0:
    report(recorder.frame(now, "finished"))
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile()
model.predict(np.ones((4, 2)))
"""


def test_frames_are_kept_within_bounds(pair, tmp_path):
    seen = tmp_path / "seen"
    seen.touch()
    pair.push({"trace": step_of_a_pipeline(ranks=16, micro_batches=32)})
    notebook = psutil.Process()
    fit = pair.fit(CELL.format(seen=str(seen), frames=FRAMES, epoch=EPOCH), {}, title="long")
    eventually(lambda: fit.frames)
    before = notebook.memory_info().rss
    most = 0
    while fit.state == "running":
        os.truncate(seen, max((frame["seq"] for frame in fit.frames[-1:]), default=0))
        most = max(most, notebook.memory_info().rss - before)
        time.sleep(0.02)
    fit.wait(10)
    assert most < MAY_GROW, f"the notebook grew by {most / 1e6:.0f} MB"

    kept = telemetry.main_run(fit.frames)
    assert MAX_FRAMES / 5 < len(kept) <= MAX_FRAMES
    assert (kept[0]["seq"], kept[-1]["seq"], kept[-1]["state"]) == (1, FRAMES + 1, "finished")
    assert telemetry.duration(kept) == pytest.approx(0.2 * (FRAMES - 1))
    rows = telemetry.epoch_rows(kept)
    assert rows[-1]["epoch"] == FRAMES // EPOCH and MAX_ROWS / 5 < len(rows) <= MAX_ROWS
    with_step = sum("step_trace" in frame for frame in kept)
    assert 50 < with_step < 400  # of a third as many as frames
    size = sum(path.stat().st_size for path in fit.folder.iterdir())
    assert size < RUN_BYTES + (1 << 20)
    archived = telemetry.main_run(Trace.open(fit.folder).frames)
    assert archived[-1]["seq"] == FRAMES + 1 and archived[0]["seq"] == 1
