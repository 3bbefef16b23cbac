"""A slow link between hosts is named: on emulated hosts, over real TCP."""

import sys

from tests.support.hosts import hosts, needed
from tests.support.rank_pool import ROOT, rank_environment

pytestmark = needed

#: Of two ranks: says what limits its training, of two replicas and of a pipeline.
PROGRAM = """
import keras, numpy as np, tnt_notebook as tnt
from tnt_notebook import telemetry

for how in ("replicas", "pipeline"):
    layers = [keras.layers.Dense(512, name=f"{how}_{number}") for number in range(4)]
    model = keras.Sequential([keras.Input((512,)), *layers])
    model.compile("sgd", "mse")
    staged = tnt.Pipeline(2, micro_batches=4, cut_at=[layers[2].name])
    x = np.ones((6 * 256, 512), "float32")
    frames = []
    with tnt.distributed(report=frames.append, pipeline=staged if how == "pipeline" else None):
        model.fit(x, x, batch_size=256, verbose=0)  # in one epoch: input is read ahead
    if frames:
        error = next(f["step_trace"]["clock_error"] for f in frames if "step_trace" in f)
        print(f"LIMIT {how} {error} {telemetry.limit_of(frames)}")
"""
SENTENCES = {
    "replicas": "the link between hosts is slow, a rank sends ",
    "pipeline": "for messages that are on their way from rank ",
}


def test_a_slow_link_is_named():
    with hosts(2, rate="30mbit", delay_us=100) as rack:
        run = rack[0].run(
            [*rack.mpiexec(ranks_per_host=1), sys.executable, "-c", PROGRAM],
            cwd=ROOT, env=rank_environment(), capture_output=True, text=True, timeout=200,
        )  # fmt: skip
    assert run.returncode == 0, run.stderr
    told = [line.split(" ", 3)[1:] for line in run.stdout.splitlines() if line[:5] == "LIMIT"]
    assert [how for how, _, _ in told] == list(SENTENCES)
    for how, error, limit in told:
        assert SENTENCES[how] in limit
        # Two hosts, two clocks; here they are one, and a round trip takes at least twice the delay.
        assert 90e-6 < float(error) < 0.1
