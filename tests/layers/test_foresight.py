"""What is foreseen of a mesh is what ranks do: bytes of conversions, and boxes in the view."""

from collections import Counter
from typing import Any

import keras
import numpy as np

import tnt_notebook as tnt
from tnt_notebook import comm
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layers.choose import chosen
from tnt_notebook.parallel.layers.costs import Estimate
from tnt_notebook.parallel.layers.foresight import layout_in_words, planned_conversions, why_whole
from tnt_notebook.parallel.layers.layout import Layout
from tnt_notebook.parallel.layers.link import measured_link
from tnt_notebook.parallel.layers.measured import agreed_costs
from tnt_notebook.telemetry.conversions import conversions, converting

L = keras.layers
MESH, SAMPLES = tnt.Mesh(height=2), 4
LAYOUTS = {"conv_.*|pool": tnt.Split(height="height")}


def cnn() -> keras.Model:
    x = keras.Input((8, 6, 2))
    y = L.Conv2D(4, 3, padding="same", name="conv_1")(x)
    y = L.Conv2D(4, 5, padding="same", name="conv_2", activation="relu")(y)
    y = L.MaxPooling2D(2, name="pool")(y)
    y = L.Lambda(lambda t: 2.0 * t, name="whole")(y)
    y = L.Conv2D(3, 1, name="conv_3")(y)
    return keras.Model(x, L.Dense(2, name="last")(L.Flatten(name="flat")(y)))


def trained() -> dict[str, Any]:
    """What two ranks sent in a step, what was foreseen, and what a frame shows."""
    keras.utils.set_random_seed(1)
    model = cnn()
    model.compile("sgd", "mse")
    world, frames = comm.world(), []
    graph = surveyed(model)
    costs = agreed_costs(world, model, graph, SAMPLES)
    estimate = Estimate(graph, MESH, SAMPLES, costs)
    program = chosen(graph, MESH, SAMPLES, costs, LAYOUTS)
    _, foreseen = planned_conversions(program, estimate)
    x, y = np.ones((2 * SAMPLES, 8, 6, 2)), np.ones((2 * SAMPLES, 2))
    seen = world.traced()
    other = cnn()
    other.compile("sgd", "mse")
    with tnt.distributed(mesh=MESH, layouts=LAYOUTS, report=frames.append) as session:
        model.fit(x, y, batch_size=SAMPLES, verbose=0)
        made, frame = session.functions[id(model)].exchanges, frames[-1:]
        events = world.trace(seen)
        other.fit(x, y, batch_size=SAMPLES, verbose=0)  # has conversions of its own
    sent = Counter[str]()
    for one in conversions(events, converting(made)):
        if one.ranks:  # of sums it depends on the algorithm
            sent[one.what.partition(" for ")[2]] += one.sent
    expected = Counter[str]()
    names = [*(call.name for call in graph.calls), "the outputs"]
    for name, steps in zip(names, foreseen, strict=True):
        moves = [step for step in steps if not step.what.startswith("sum")]
        expected[name] += 2 * sum(step.there_bytes + step.back_bytes for step in moves)
    whole = [
        why_whole(s, MESH) for s, w in zip(program.layer_calls, program.ways, strict=True) if not w
    ]
    return {
        "sent": dict(sent), "expected": {n: b for n, b in expected.items() if b},
        "whole": whole, "frame": frame[0] if frame else None,
    }  # fmt: skip


def test_ranks_send_what_was_foreseen_and_the_view_shows_it(ranks):
    first, second = ranks.run(2, trained)
    assert first["sent"] == first["expected"] and "conv_2" in first["sent"]
    assert second["sent"].keys() == first["sent"].keys()
    assert first["whole"][0] == "no rule for Lambda"
    step = first["frame"]["step_trace"]
    told = [step["conversions"][n] for row in step["rows"] for k, n in zip(
        row["kinds"], row["numbers"], strict=True) if k == "V"]  # fmt: skip
    assert any(t.startswith("halo exchange for conv_2, ") and "with rank 1" in t for t in told)
    assert any(t.startswith("gather for whole, ") for t in told)
    assert "S" not in "".join(row["kinds"] for row in step["rows"])
    for of_rank in first["frame"]["breakdown"]:
        assert of_rank[-1] > 0


def links() -> list[Any]:
    """What ranks exchange with, measured and as it is known then; and the costs that follow."""
    world = comm.world()
    measured = measured_link(world)
    model = keras.Sequential([keras.Input((3,)), L.Dense(2)])
    costs = agreed_costs(world, model, surveyed(model), SAMPLES)
    return [measured, measured_link(world), costs.link]


def test_a_link_is_measured_once_and_all_ranks_go_by_it(ranks):
    (first, again, costs), other = ranks.run(2, links)
    assert [first, again, costs] == other and first == again == costs
    assert first.latency_s > 0 and first.bytes_per_s > 0


def test_layouts_in_words():
    assert layout_in_words(Layout(), 4) == "whole"
    two = Layout(((1, "height"), (3, "model")), frozenset({"other"}))
    assert layout_in_words(two, 4) == (
        "split along height, channels over model, summands over other"
    )
    assert layout_in_words(Layout(((1, "model"),)), 2) == "channels over model"
