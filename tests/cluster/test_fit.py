"""The handle of a fit, on real ranks that train a real model."""

import re
import time
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from tnt_notebook.cluster import Cluster, Fit
from tnt_notebook.errors import ClusterError, ModelError, RankError
from tnt_notebook.telemetry import archive
from tnt_notebook.telemetry.activities import DOING, LETTER, RankRibbon, totals
from tnt_notebook.telemetry.kept_ribbon import ribbon_of
from tnt_notebook.telemetry.run_reader import read

CELL = """
import keras, numpy as np
x = np.random.default_rng(1).random((256, 8), "float32")
y = (x.sum(1) > 4).astype("int64")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(2)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("sgd", loss, metrics=["accuracy"])
model.fit(x, y, batch_size=32, epochs={epochs}, validation_split=0.25)
"""


def test_history_and_model_come_to_the_notebook(cluster, capsys):
    fit = cluster.fit(CELL.format(epochs=3), {"bucket_mb": 1.0}, title="digits")
    assert fit.state in ("queued", "running") and fit.error is None
    assert fit.wait(300) is fit
    assert fit.state == "finished"
    assert set(fit.history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert all(len(values) == 3 for values in fit.history.values())
    assert "epoch 3 of 3" in repr(fit) and "digits" in fit._repr_html_()
    last = fit.frames[-1]
    assert [row["epoch"] for row in last["rows"]] == [1, 2, 3]
    assert last["state"] == "finished" and len(last["rates"]) == 3
    assert [frame["seq"] for frame in fit.frames] == sorted(frame["seq"] for frame in fit.frames)
    model = fit.model
    cluster.run("print(float(abs(model.get_weights()[0]).sum()))", [1])
    printed = float(capsys.readouterr().out.split(":")[-1])
    assert float(abs(model.get_weights()[0]).sum()) == pytest.approx(printed, rel=1e-6)
    assert fit.model is model


def test_what_each_rank_did_is_told_at_once_and_kept(cluster):
    slow = "keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(0.3))"
    cell = f"import time\n{CELL}".replace("epochs={epochs}", f"epochs=2, callbacks=[{slow}]")
    cell += "\nmodel.evaluate(x, y)"
    fit = cluster.fit(cell, {})
    eventually(lambda: len(known(fit)) == 3)
    assert not any(frame["step"] for frame in fit.frames)  # all ranks tell before the first step
    assert fit.wait(300).state == "finished"
    for ribbon in (known(fit), kept := ribbon_of(read(fit.folder)).ranks):
        assert sorted(ribbon) == [0, 1, 2]
        for rank, own in ribbon.items():
            assert own.begins == sorted(own.begins)
            seen = [DOING[letter].name for letter in own.doing]
            order = ["trace", "train", "epoch_end" if rank == 0 else "wait", "train"]
            assert is_within(order, seen), (rank, seen)
    of_0, of_1 = (totals(kept[rank], kept[rank].begins[-1]) for rank in (0, 1))
    assert of_0[LETTER["epoch_end"]] > 0.55 and of_1[LETTER["wait"]] > 0.5
    assert LETTER["evaluate"] in known(fit)[2].doing
    took = fit._view._ribbon.seconds  # on the card; the list and what is shown of it say the same
    info = archive.about(fit.folder)
    assert info.seconds == pytest.approx(took, abs=0.05)
    assert ribbon_of(read(fit.folder), info.known).seconds == pytest.approx(took, abs=0.05)


def known(fit: Fit) -> dict[int, RankRibbon]:
    return fit._view._ribbon.ranks


def is_within(some: list[str], many: list[str]) -> bool:
    """Whether they come in this order, others between them."""
    rest = iter(many)
    return all(one in rest for one in some)


def test_its_cell_may_await(cluster, capsys):
    fit = cluster.fit("import asyncio\nawait asyncio.sleep(0.01)\n" + CELL.format(epochs=1), {})
    assert fit.wait(300).state == "finished"
    cluster.run("await asyncio.sleep(0)\nprint(len(model.history.epoch))")
    assert capsys.readouterr().out.endswith("ranks 0-2: 1\n")


def test_stop_ends_it_after_the_current_step(cluster):
    fit = cluster.fit(CELL.format(epochs=100_000), {})
    eventually(lambda: fit.history.get("loss"))
    assert fit.frames and {row.state for row in cluster.status()} == {"busy"}
    with pytest.raises(TimeoutError, match="still runs"):
        fit.wait(0.01)
    fit.stop()
    fit.wait(300)
    assert fit.state == "stopped" and 1 <= len(fit.history["loss"]) < 100_000


#: Without an end, after the first lines of CELL.
LOOPS = {
    "train_on_batch": "while True: model.train_on_batch(x[:32], y[:32]); going()",
    "predict_on_batch": "while True: model.predict_on_batch(x[:32]); going()",
    "predict": """
def batches():
    while True:
        going()
        yield (x[:32],)
model.predict(batches())
""",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_stop_ends_loops_without_fit(cluster, loop):
    going = "going = lambda: globals().update(steps=globals().get('steps', 0) + 1)\n"
    fit = cluster.fit(CELL.rpartition("model.fit")[0] + going + LOOPS[loop], {})
    eventually(lambda: fit.state == "running")
    time.sleep(1)  # in the loop, or while TensorFlow loads: a stop is heard in both
    fit.stop()
    assert fit.wait(300).state == "stopped"
    assert cluster.pull("steps") >= 1


def test_a_stop_that_comes_early_is_not_lost(cluster):
    fit = cluster.fit(CELL.format(epochs=100_000), {})
    fit.stop()
    fit.wait(300)
    assert fit.state == "stopped"


STUCK = """
import keras, numpy as np, os, time
from tnt_notebook import comm
def hang():
    if comm.rank() == 1:
        open({file!r}, "w").close()
        time.sleep(100)
class Data(keras.utils.PyDataset):
    def __len__(self): return 10
    def __getitem__(self, i):
        if os.path.exists({file!r} + ".go"): hang()
        return np.ones((24, 4)), np.ones((24, 1))
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
"""


def stuck(cluster: Cluster, file: Path, code: str) -> Fit:
    """A fit of which rank 1 is stuck, and the others wait for it."""
    fit = cluster.fit(STUCK.format(file=str(file)) + code, {})
    if not code.startswith("hang"):
        eventually(lambda: len(fit.frames) > 2)
        file.with_suffix(".go").touch()
    eventually(file.exists)
    time.sleep(1)  # batches that were read before are used up
    return fit


def test_a_rank_that_is_stuck_is_interrupted_and_named(cluster, tmp_path):
    fit = stuck(cluster, tmp_path / "stuck", "hang()\ncomm.world().barrier()")
    fit.stop_within = 1
    fit.stop()
    with pytest.raises(RankError, match="rank 1: KeyboardInterrupt") as raised:
        fit.wait(300)
    shown = "\n".join(raised.value._render_traceback_())
    shown = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "time.sleep(100)" in shown and "ranks 0,2: freed from waiting" in shown
    # A person has wanted it.
    assert fit.state == "stopped" and fit.unseen == ""
    card = fit._view._card
    assert card.state == "stopped" and card.error.startswith("Aborted: rank 1: KeyboardInterrupt")
    assert cluster.fit(CELL.format(epochs=1), {}).wait(300).state == "finished"


def test_a_rank_that_is_stuck_in_its_input_is_named_and_the_ranks_start_anew(
    pair, tmp_path, impatient
):
    fit = stuck(pair, tmp_path / "stuck", "model.fit(Data(), epochs=100_000)")
    fit.abort()  # while TensorFlow reads, in a thread of its own
    with pytest.raises(ClusterError, match="rank 1 did not end") as raised:
        fit.wait(300)
    assert " in hang\n" in str(raised.value) and " in __getitem__" in str(raised.value)
    assert fit.state == "stopped"
    pair.run("1")


def test_cells_and_fits_wait_for_the_fit_before_them(cluster, capsys):
    first = cluster.fit(CELL.format(epochs=2), {})
    said: list[str] = []
    cluster.run("print(len(model.history.epoch))", report=said.append)
    assert first.state == "finished" and said == ["waiting for fit to end"]
    assert capsys.readouterr().out.splitlines()[-1] == "ranks 0-2: 2"
    second, third = (cluster.fit(CELL.format(epochs=1), {}) for _ in range(2))
    assert {second.wait(300).state, third.wait(300).state} == {"finished"}


def test_a_rank_that_raises_ends_it_everywhere(cluster, capsys):
    bad = "from tnt_notebook import comm\nif comm.rank() == 1: raise ValueError('bad shard')\n"
    fit = cluster.fit(bad + CELL.format(epochs=1), {})
    eventually(lambda: fit.state == "failed")
    assert fit.unseen.startswith("fit has failed: rank 1: ValueError: bad shard (its card")
    with pytest.raises(RankError, match="rank 1: ValueError: bad shard") as raised:
        fit.wait(300)
    assert fit.unseen == ""
    assert fit.state == "failed" and fit.error is raised.value
    assert "ranks 0,2: freed from waiting" in raised.value._render_traceback_()
    raising = "if comm.rank() == 1: raise ValueError('bad shard')"
    assert fit._view._card.error.endswith(f"bad shard\n\nline 2 of the cell: {raising}")
    assert f"----> 2 {raising}" in fit._view._card.traceback
    assert cluster.fit(CELL.format(epochs=1), {}).wait(300).state == "finished"


def test_a_cell_that_cannot_train_says_so_and_where(cluster):
    labels = CELL.rpartition("model.fit")[0] + "model.fit(x, y + 2)"  # there are two classes
    for cell, message, line in (
        ("1 + 1", "The cell calls neither fit", ""),
        ("x = 1\ndef f(:", "ranks 0-2: SyntaxError: invalid syntax", "line 2 of the cell: def f(:"),
        ("import sys; sys.exit(3)", "SystemExit: 3", "line 1 of the cell: import sys; sys.exit(3)"),
        (labels, "a label value of .* Label values", "line 7 of the cell: model.fit(x, y + 2)"),
    ):
        with pytest.raises(RankError, match=message) as raised:
            cluster.fit(cell, {}).wait(300)
        assert line in raised.value.whole.splitlines()[-1]


EXCHANGE = """
from tnt_notebook.comm import ops

def plain(gradients, variables, scale, over):
    return ops.allreduce(gradients, scale, over=over)
"""


def test_an_exchange_is_one_of_ours_or_a_variable_of_the_cells(cluster):
    cluster.run(EXCHANGE)
    own, late = (
        cluster.fit(CELL.format(epochs=2), {"exchange": name}).wait(300)
        for name in ("plain", "late:steps=2")
    )
    assert late.history["loss"] != own.history["loss"]
    assert own.frames[-1]["exchange"].startswith("exchange plain, which gives up what its func")
    said = late.frames[-1]["exchange"]
    assert said.startswith("exchange late:steps=2, which gives up equality with one process")
    unknown = cluster.fit("x = 1", {"exchange": "plane"})
    with pytest.raises(RankError, match="no exchange 'plane'. It is one of allreduce, shar"):
        unknown.wait(300)


def test_a_model_of_a_class_that_only_the_ranks_know(cluster):
    own = """
import keras, numpy as np
class Own(keras.Model):
    def __init__(self): super().__init__(); self.dense = keras.layers.Dense(1)
    def call(self, x): return self.dense(x)
model = Own(); model.compile("sgd", "mse")
model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=1)
"""
    fit = cluster.fit(own, {})
    fit.wait(300)
    with pytest.raises(ModelError, match="register_keras_serializable"):
        _ = fit.model
    assert fit.model_bytes()[:2] == b"PK"
    later = cluster.fit(own, {})
    later.wait(300)
    with pytest.raises(RankError, match="ModelError: The ranks have the model of"):
        fit.model_bytes()
