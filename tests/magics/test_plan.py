"""``%tnt_plan``: what it shows, what it leaves, and what it refuses."""

import json

import pytest

from tests.magics.notebook import PLOTLY, ended, shown
from tests.magics.test_commands import typed

PARTS = ("layers", "stages", "exchange", "overhead")

CELL = """%%tnt
import keras
from keras import layers
import tnt_notebook as tnt
model = keras.Sequential([keras.Input((64,)), *(layers.Dense(96, "tanh") for _ in range(5))])
split = keras.Sequential([keras.Input((8,)), layers.Dense(8, name="first"),
                          tnt.keras.layers.SplitLayer(), layers.Dense(8, name="last")])
number = 3
import tensorflow as tf
samples = tf.data.Dataset.range(512).map(lambda i: i * 2).batch(256)
single = tf.data.Dataset.range(9)
stateful = keras.Sequential([
    keras.Input((3, 2), batch_size=4), keras.layers.LSTM(2, stateful=True), keras.layers.Dense(1),
])
"""


def test_a_plan_of_a_model(shell_with_ranks, tmp_path):
    shell = shell_with_ranks
    assert typed(shell, "%tnt_plan") == (
        "ModelError: 'model' is not defined in the cells of the ranks. Define the model there "
        "first: in a cell of %%tnt, or of %%tnt_fit.\n"
    )
    typed(shell, CELL)
    said = typed(shell, "%tnt_plan modle")
    assert "'modle' is not defined in the cells of the ranks. There are model, split, sta" in said
    assert typed(shell, "%tnt_plan number") == "ModelError: 'number' is a int, not a Keras model.\n"

    assert "Make it with stateful=False" in typed(shell, "%tnt_plan stateful --batch-size 4")

    text = typed(shell, "%tnt_plan --batch-size 256 --micro-batches 4")
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    expect, times, parts, memory, *_ = blocks  # and how earlier plans have done
    sentence = next(line for line in expect if line.startswith("Expect "))
    assert "times one rank: a step of 256 samples takes " in sentence
    assert "(by the formula of 1f1b for 20%)" in sentence
    assert times[0].split() == [
        *("stage", "rank", "from,", "to", "layers", "parameters"),
        *("forward", "backward", "busy", "sends", "memory"),
    ]
    assert len(times) == len(parts) == 3
    # Where five layers are cut depends on measured times; one of two stages has more than one.
    assert any("…" in line for line in times[1:])
    assert times[2].split()[-3] == "-"  # the last stage sends nothing
    assert "2 of 4" in parts[1] and "1 of 4" in parts[2]
    assert memory[0].startswith("Rank ") and " needs most memory, " in memory[0]
    plan = shell.user_ns["plan"]
    assert (plan.ranks, plan.replicas, plan.rows) == (2, 1, 64)
    assert sum(stage.layers for stage in plan.stages) == 5

    # What is known is not measured again, and so the same is said.
    again = typed(shell, "%tnt_plan --batch-size 256 --micro-batches 4 --name second")
    assert "measured" not in again and again.strip() == text[text.index("Expect ") :].strip()
    assert shell.user_ns["second"] == plan

    # With what is read: who maps what, and a step that is as long as its input takes.
    fed = typed(shell, "%tnt_plan --batch-size 256 --micro-batches 4 --input samples")
    assert "Input: samples delivers " in fed and "; each pipeline maps all." in fed
    plan = shell.user_ns["plan"]
    assert plan.step_s == max(plan.compute_s, plan.input_s) and plan.input_s > 0
    assert "single numbers, not batches" in typed(shell, "%tnt_plan --input single")

    table = typed(shell, "%tnt_plan --batch-size 256 --schedule all --pipeline 2")
    names = [line.split()[0].rstrip("*") for line in table.splitlines() if "%" in line]
    assert names == ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"]
    assert table.count("*") == 1 and " is the fastest" in table
    assert sorted(p.schedule for p in shell.user_ns["plan"]) == sorted(names)

    only = typed(shell, "%tnt_plan split --schedule all")
    assert "interleaved: SplitLayers make 2 parts of the model, and the schedule inter" in only
    assert "first" in typed(shell, "%tnt_plan split --pipeline 2") and "split_layer" in typed(
        shell, "%tnt_plan split --pipeline 2"
    )
    found = typed(shell, "%tnt_plan --batch-size 256 --ranks 4")
    assert "The fastest is %%tnt_fit " in found and " times one rank. " in found
    assert "With batches of 256 samples, more ranks " in found
    assert "ways to train it on 4 ranks: " in found
    plans = shell.user_ns["plan"]
    assert [plan.step_s for plan in plans] == sorted(plan.step_s for plan in plans)
    assert {plan.ranks * plan.alike for plan in plans} == {4} and len(plans) == 5
    rows = plans.by_ranks
    assert [row["ranks"] for row in rows] == [1, 2, 4, 8, 16] and rows[0]["speedup"] == 1.0
    assert {plan.one_rank_s for plan in plans} == {rows[0]["step_s"]}
    assert rows[2]["speedup"] == plans.speedup == plans.promise.speedup
    assert f"{plans.speedup:.3g} times one rank" in repr(plans)
    assert rows[2]["step_s"] == plans.step_s and rows[2]["options"] == plans.typed
    parts = [sum(row[f"{p}_s"] for p in PARTS) for row in rows]
    assert parts == pytest.approx([row["step_s"] for row in rows])

    late = typed(shell, "%tnt_plan --batch-size 256 --ranks 4 --exchange late:wire=bfloat16")
    assert ", with the exchange late:wire=bfloat16; " in late
    copies = [plan for plan in shell.user_ns["plan"] if plan.replicas > 1]
    assert copies and {plan.exchange for plan in copies} == {"late:wire=bfloat16"}
    # An exchange that all of a step hides, beside one of half as many bytes that is not.
    named = [
        typed(shell, f"%tnt_plan --pipeline 1 --micro-batches 2 --batch-size 256 --exchange {name}")
        and shell.user_ns["plan"]
        for name in ("allreduce", "allreduce:wire=bfloat16", "late", "sharded")
    ]
    assert named[0].exchange_s > named[1].exchange_s > named[2].exchange_s
    assert named[2].rank_bytes > named[0].rank_bytes >= named[3].rank_bytes
    assert named[2].typed.startswith("--exchange late --pipeline 1 --micro-batches 2")
    unknown = typed(shell, "%tnt_plan --batch-size 256 --exchange topk:ratio=0.1")
    assert "ModelError: Plans do not know what the exchange topk takes, but only all" in unknown

    # On another network, which is said above the table; what was measured here does not count.
    found = typed(shell, "%tnt_plan --batch-size 4096 --ranks 1024 --network hdr-4xa100")
    line = found[found.index("Network: ") :].splitlines()[0]
    assert "node of 4 ranks: 235 GB/s a rank, 3.4 µs; fabric: 25 GB/s a rank and 100 GB/s" in line
    assert found.index("The fastest is ") < found.index("Network: ") < found.index("limited by")
    assert {plan.ranks * plan.alike for plan in shell.user_ns["plan"]} == {1024}
    fast = shell.user_ns["plan"][0].step_s
    slow = typed(shell, "%tnt_plan --batch-size 4096 --ranks 1024 --network ethernet-1g")
    assert "Network: 1 Gbit/s Ethernet" in slow and shell.user_ns["plan"][0].step_s > fast
    few = tmp_path / "few.toml"
    few.write_text('[[level]]\nname = "node"\nranks = 8\nlatency = "1 us"\nrate = "1 GB/s"\n')
    for line, error in [
        ("--network hdr", "NetworkError: There is no network, and no file, hdr."),
        (f"--ranks 9 --network {few}", f"NetworkError: {few} has at most 8 ranks, not 9."),
        ("--network hdr-4xa100 --pipeline 2", "UsageError: --network: only where the best way is"),
        ("--network hdr-4xa100 --mesh model=2", "UsageError: --network: only where the best way"),
        (
            "--exchange late --mesh model=2",
            "UsageError: --mesh: not with --exchange, of a pipeline",
        ),
        ("--exchange late:step=2", "UsageError: --exchange 'late:step=2': late has no option"),
    ]:
        assert typed(shell, f"%tnt_plan {line}").startswith(error)

    none = typed(shell, "%tnt_plan --batch-size 256 --memory-limit 1KB")
    assert "MemoryLimitError: No way to train it on 2 ranks fits into 1 KB a rank:" in none

    more = typed(shell, "%tnt_plan --pipeline 4")  # ranks that are not there
    assert "Expect" in more and shell.user_ns["plan"].ranks == 4

    for line, error in [
        ("--cut-at lost", "ModelError: cut_at names 'lost', and the model has no such layer."),
        ("--pipeline 9", "ModelError: The model has 5 layer calls, so it cannot be cut into 9"),
        (
            "--pipeline 2 --memory-limit 100KB",
            "MemoryLimitError: No cut into 2 stages fits into 100 KB a rank: even",
        ),
        ("--stages-per-rank 2", "ScheduleError: Schedule 1f1b has 1 stage a rank, not 2."),
        ("split --pipeline 2 --memory-limit 500B", "MemoryLimitError: With this cut rank 0 "),
    ]:
        refused = typed(shell, f"%tnt_plan {line}")
        assert error in refused and len(refused.splitlines()) == 1, refused
    text = typed(shell, "%tnt_plan --mesh model=2 --batch-size 256 --layout dense:columns=model")
    assert "samples/s on 2 ranks (data=1,model=2), " in text
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    table = next(block for block in blocks if block[0].startswith("layer"))
    assert table[1].split()[:6] == ["dense", "columns", "over", "model", "channels", "over"]
    assert len(table) >= 1 + 5 + 1 and table[-1].startswith("in all")
    assert "as measured among 2 ranks." in text
    plan = shell.user_ns["plan"]
    assert (plan.ranks, plan.replicas, plan.samples) == (2, 1, 256)
    assert plan.layers[0].ways == {"model": "columns"} and plan.alone_s > plan.work_s
    typed(shell, "%tnt_plan --mesh model=4 --ranks 8 --batch-size 256")
    assert shell.user_ns["plan"].mesh == "data=2,model=4"  # ranks that are not there

    # Stages whose work is divided: half of each layer's, and less than half of the memory.
    # They are cut where it is said: where costs are least, depends on measured times.
    cut = "--cut-at dense_3 --micro-batches 4"
    pair = f"--layout dense.*:columns=model --batch-size 256 {cut}"
    text = typed(shell, f"%tnt_plan --mesh data=2,stage=2,model=2 {pair}")
    assert "samples/s of 2 replicas, " in text
    blocks = [block.splitlines()[0].split()[0] for block in text.strip().split("\n\n")]
    assert blocks[1] == "stage" and "layer" in blocks
    divided = shell.user_ns["plan"]
    assert (divided.ranks, divided.replicas, divided.rows) == (2, 2, 32)
    assert divided.layouts.mesh == "data=2,stage=2,model=2" and divided.layouts.samples == 32
    typed(shell, f"%tnt_plan --pipeline 2 --batch-size 128 {cut}")
    alone = shell.user_ns["plan"]
    for one, other in zip(divided.stages, alone.stages, strict=True):
        assert (one.first, one.last, one.parameters) == (other.first, other.last, other.parameters)
        assert one.memory.weights < 0.6 * other.memory.weights
        work = [layer for layer in divided.layouts.layers if not layer.whole]
        assert work and one.forward_s > 0
    fits = f"--memory-limit {int(0.7 * max(alone.rank_bytes))}B"  # a part of each layer
    refused = typed(shell, f"%tnt_plan --pipeline 2 --batch-size 128 --micro-batches 4 {fits}")
    assert "No cut into 2 stages fits" in refused
    assert "Expect" in typed(shell, f"%tnt_plan --mesh data=2,stage=2,model=2 {pair} {fits}")
    again = typed(shell, f"%tnt_plan --mesh model=2 --pipeline 2 --ranks 8 {pair}")
    assert again == text and shell.user_ns["plan"] == divided

    for line, error in [
        (
            "--mesh model=2 --memory-limit 1KB",
            "MeshError: No layouts on the mesh data=1,model=2 fit",
        ),
        ("--mesh model=2 --layout lost:rows=model", "MeshError: No layer has a name like 'lost'"),
        ("--mesh model=2 --layout dense:heads=model", "MeshError: The layer dense cannot be divi"),
        ("--mesh model=3 --ranks 4", "UsageError: --mesh: The mesh model=3 needs a multiple of 3"),
        ("--mesh model=2 --recompute", "UsageError: --mesh: not with --recompute, of a pipeline"),
        ("--mesh stage=2,model=2 --pipeline 3", "UsageError: --mesh: the mesh data=1,stage=2,mode"),
        ("--mesh stage=2,model=2 --layout dense:heads=model", "MeshError: The layer dense cannot"),
        ("--mesh model", "UsageError: --mesh: 'model' is not an axis of a mesh"),
        ("--layout a:rows=b", "UsageError: --layout: only with --mesh, which names the axes"),
        ("--pipeline 2 --ranks 4", "UsageError: --ranks: not with a pipeline, whose number"),
        ("--mesh a=2 --layout a:rows", "UsageError: --layout: 'rows' is not a way to divide a"),
    ]:
        assert error in typed(shell, f"%tnt_plan {line}"), line
    fit = "x = keras.ops.ones((8, 64))\nmodel.compile('sgd', 'mse')\nmodel.fit(x, x[:, :1])"
    refused = typed(shell, f"%%tnt_fit --wait --pipeline 2 --memory-limit 100KB\n{fit}")
    assert "No cut into 2 stages fits into 100 KB a rank: even the smallest needs" in refused
    over = "--mesh model=2 --layout dense_1:rows=model --memory-limit 1KB"
    refused = typed(shell, f"%%tnt_fit --wait {over}\n{fit}")
    assert "No layouts on the mesh data=1,model=2 fit into 1 KB a rank" in refused
    assert typed(shell, "%%tnt\nprint('still here')") == "ranks 0-1: still here\n"


def test_a_notebook_keeps_table_and_timeline(notebook):
    notebook.run(CELL)
    messages = notebook.messages_until(notebook.begin("%tnt_plan --schedule zb-h1"), ended)
    rich = [m["content"]["data"] for m in messages if m["msg_type"] == "display_data"]
    (table,) = [data for data in rich if "<table" in data.get("text/html", "")]
    assert "Expect " in table["text/html"] and "Expect " in table["text/plain"]
    (figure,) = [data for data in rich if PLOTLY in data]
    assert figure["text/plain"] == "Figure: timeline of a step of zb-h1 on 2 ranks."
    names = [trace["name"] for trace in figure[PLOTLY]["data"]]
    assert names == ["idle", "forward", "input gradient", "weight gradient"]
    assert len(json.dumps(figure)) < 100_000
    assert "Traceback" not in shown(messages)
    assert notebook.run("'tensorflow' in __import__('sys').modules") == "False\n"
