"""What a plan of a mesh says, and its table."""

import dataclasses
import json

from tnt_notebook.dashboard.card.saved import PLOTLY
from tnt_notebook.dashboard.reports.layouts import (
    HEAD,
    figure_bundle,
    headline,
    limit,
    link,
    memory,
    rows,
    whole,
)
from tnt_notebook.magics.mesh_plan import plan_bundle
from tnt_notebook.plan.layouts import ConversionPlan, LayerPlan, MeshPlan, as_json, from_json
from tnt_notebook.plan.network import Link

KB = 1 << 10
HALO = ConversionPlan("halo exchange", ("height",), 2 * KB, 2 * KB)
GATHER = ConversionPlan("gather", ("height",), 8 * KB, 0)
BACK = ConversionPlan("sum", ("height",), 0, KB)
CONV = LayerPlan(
    "conv", "Conv2D", {"height": "height"}, "split along height", (HALO,), 8.0, 2.0, 0.5,
    4 * KB, 16 * KB, "",
)  # fmt: skip
AGAIN = dataclasses.replace(
    CONV, ways={"height": "height", "model": "filters"}, conversions=(BACK,)
)
LAMBDA = LayerPlan(
    "lambda", "Lambda", {}, "whole", (GATHER, GATHER), 2.0, 1.0, 0.5, 0, 32 * KB,
    "no rule for Lambda",
)  # fmt: skip
PLAN = MeshPlan(
    "data=2,height=2", 4, 2, 32, 16, (CONV, AGAIN, LAMBDA), (GATHER,), 0.5, 1 * KB, 0, 0.5,
    200 * KB, Link(30e-6, 2e9), 2,
)  # fmt: skip


def test_words():
    assert PLAN.step_s == 7.5 and PLAN.alone_s == 18.0
    assert headline(PLAN) == (
        "Expect 4.3 samples/s on 4 ranks (data=2,height=2), 2.4 times one rank: a "
        "step of 32 samples takes 7.5 s, 27% conversions and 7% exchange of gradients."
    )
    assert limit(PLAN) == (
        "Conversions cost 27% of a step, most of it before conv: larger samples or batches, or "
        "other axes, lower that."
    )
    free = dataclasses.replace(PLAN, layers=(LAMBDA,), outputs_s=0.0, gradients_s=0.0)
    assert limit(free).startswith("Layers that all ranks compute alike cost ")
    assert limit(dataclasses.replace(PLAN, gradients_s=9.0)).startswith("The exchange of gradients")
    ideal = dataclasses.replace(CONV, conversions_s=0.0)
    good = dataclasses.replace(PLAN, layers=(ideal,), outputs_s=0.0, gradients_s=0.0)
    assert limit(good).startswith("Nothing in particular limits it")
    assert whole(good) == ""
    assert whole(PLAN) == ("Of 3 layers 1 runs whole on every rank: lambda (no rule for Lambda).")
    assert memory(PLAN) == (
        "A rank needs 73 KB: 8 KB for weights, gradients and optimizer state, 65 KB for "
        "activations. One rank alone would need 200 KB."
    )
    assert ", and may need 80 KB: " in memory(dataclasses.replace(PLAN, memory_limit=80 * KB))
    assert link(PLAN).endswith("a rank sends 2 GB/s, as measured among 2 ranks.")
    assumed = dataclasses.replace(PLAN, link_ranks=0)
    assert link(assumed) == (
        "An exchange takes 30 µs, and a rank sends 2 GB/s, as is usual within a node."
    )


def test_a_row_a_layer():
    conv, again, one, outputs, every = rows(PLAN)
    assert conv == (
        "conv", "height", "split along height", "halo exchange", "4 KB", "8 s", "2.5 s",
        "4 KB", "16 KB",
    )  # fmt: skip
    assert again[1] == "height, filters over model" and again[3] == "(sum of gradients)"
    assert one[1:5] == ("whole", "whole", "2 x gather", "16 KB") and one[7] == "-"
    assert outputs[0] == "(outputs)" and every[0] == "in all" and every[6] == "7.5 s"
    assert {len(row) for row in rows(PLAN)} == {len(HEAD)}
    text = plan_bundle(PLAN)["text/plain"]
    assert text.count("\n\n") == 4 and "conversion before it" in text
    many = dataclasses.replace(PLAN, layers=50 * (CONV,))
    assert "<summary>layer by layer (50)</summary>" in plan_bundle(many)["text/html"]


def test_the_figure_has_a_bar_a_layer_and_stays_small():
    figure = figure_bundle(dataclasses.replace(PLAN, layers=200 * PLAN.layers))
    work, conversions, alone = figure[PLOTLY]["data"]
    assert len(work["y"]) == len(set(work["y"])) == 24 == len(alone["y"])
    assert (work["name"], conversions["name"]) == ("work", "conversions")
    assert len(json.dumps(figure)) < 50_000


def test_a_plan_travels_as_json():
    assert from_json(json.loads(json.dumps(as_json(PLAN)))) == PLAN
