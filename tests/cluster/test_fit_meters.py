"""What ranks use while a real fit trains: live, in its frames, kept, exported."""

import json

import pytest

from tnt_notebook import telemetry
from tnt_notebook.dashboard.reports.trace import Trace
from tnt_notebook.telemetry.curves import curves_of
from tnt_notebook.telemetry.run_reader import read

#: For four seconds; rank 1 holds 300 MiB more, and sleeps between steps as rank 0 does not.
CELL = """
import time, keras, numpy as np
from tnt_notebook import comm

held = b"x" * ((300 << 20) * comm.rank())
x = np.ones((512, 256), "float32")
model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(512), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-5), "mse")
until = time.monotonic() + 4

class Limited(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if comm.rank() == 1:
            time.sleep(0.02)
        self.model.stop_training = time.monotonic() > until

model.fit(x, x[:, :1], batch_size=64, epochs=10_000, callbacks=[Limited()])
"""


def test_what_ranks_use_is_in_frames_on_the_card_on_disk_and_in_the_export(pair, tmp_path):
    fit = pair.fit(CELL, {}, title="meters")
    assert fit.wait(300).state == "finished"
    curves = curves_of(telemetry.main_run(fit.frames))
    seconds = sorted(curves.at)
    assert len(seconds) >= 4 and seconds == list(range(seconds[0], seconds[-1] + 1))
    last = curves.at[seconds[-2]]
    cpu, memory, (host, *others) = (last[letter] for letter in "cmh")
    assert all(0 <= of_rank <= 110 for of_rank in cpu)
    assert 250 < memory[1] - memory[0] < 400 and memory[0] > 200
    assert 0 < host < 100 and not any(others)  # told by the first rank of a host only
    assert not curves.warning
    drawn = dict(fit._view._card.ribbon["meters"])
    assert drawn[seconds[-2]]["m"] == memory
    assert curves_of(read(fit.folder)).at == curves.at
    assert "meters" not in fit._view._card.frame
    assert "CPU" in fit._view._card.left["summary"]["text/plain"]
    assert fit._view._card.left["summary"]["text/html"].count("tnt-used") >= 3
    table = Trace.open(fit.folder).to_pandas("meters")
    assert table[table["rank"] == 1].memory.iloc[-2] == pytest.approx(memory[1], abs=50)
    exported = json.loads(fit.trace.save(tmp_path / "run.json").read_text())["traceEvents"]
    counters = {(e["pid"], e["name"]) for e in exported if e["ph"] == "C"}
    assert {(0, "CPU (%)"), (1, "CPU (%)"), (1, "memory (MiB)"), (0, "host mem. (%)")} <= counters
