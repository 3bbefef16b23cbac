"""What ``%tnt_plan --mesh`` says: how a model is divided, what that takes, and what runs whole."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tnt_notebook.dashboard.card.saved import PLOTLY, Bundle
from tnt_notebook.dashboard.figures.panels import (
    Panel,
    drawn,
    height_of,
    lines_of,
    scale_of,
    short,
    swatch,
)
from tnt_notebook.dashboard.figures.wording import plural, rate, short_time, size, three_digits
from tnt_notebook.plan.layouts import ConversionPlan, LayerPlan, MeshPlan
from tnt_notebook.telemetry.kinds import BOX_KINDS

#: Layers of which a figure has a bar each; of a model with more, those that take longest.
MOST_BARS = 24
#: Of the mark where a layer would end whose time is divided by all ranks: seen on bars and pages.
_MARK = "#e69f00"
#: Names of layers in a sentence.
_NAMED = 6
#: Characters of the name of a layer beside a bar.
_SHORT = 24


def headline(plan: MeshPlan) -> str:
    """What to expect, in a sentence."""
    shares = [("conversions", plan.conversions_s), ("exchange of gradients", plan.gradients_s)]
    parts = [f"{share:.0%} {name}" for name, s in shares if (share := s / plan.step_s) >= 0.005]
    of_it = f", {' and '.join(parts)}" if parts else ""
    return (
        f"Expect {rate(plan.samples_per_s)} samples/s on "
        f"{plural(plan.ranks, 'rank')} ({plan.mesh}), {three_digits(plan.speedup)} times one rank: "
        f"a step of {plural(plan.batch_size, 'sample')} takes {short_time(plan.step_s)}{of_it}."
    )


def limit(plan: MeshPlan) -> str:
    """What makes a step longer than it need be, in a sentence."""
    ideal = plan.alone_s / plan.ranks
    whole_s = sum(layer.work_s for layer in plan.whole) * (1 - plan.replicas / plan.ranks)
    losses = {
        "whole": whole_s, "conversions": plan.conversions_s, "gradients": plan.gradients_s,
    }  # fmt: skip
    worst = max(losses, key=lambda name: losses[name])
    if plan.step_s <= 1.05 * ideal or losses[worst] < 0.05 * plan.step_s:
        return "Nothing in particular limits it: ranks are at work nearly all the time."
    share = f"{losses[worst] / plan.step_s:.0%} of a step"
    if worst == "whole":
        return f"Layers that all ranks compute alike cost {share}: see below why."
    if worst == "conversions":
        layer = max(plan.layers, key=lambda one: one.conversions_s)
        where = f", most of it before {layer.name}" if layer.conversions_s else ""
        return (
            f"Conversions cost {share}{where}: larger samples or batches, or other axes, lower "
            "that."
        )
    return (
        f"The exchange of gradients costs {share} where nothing hides it: larger batches, or an "
        "axis that cuts weights, lower that."
    )


def whole(plan: MeshPlan) -> str:
    """Which layers all ranks compute alike, and why; empty: there are none."""
    reasons: dict[str, list[str]] = {}
    for layer in plan.whole:
        reasons.setdefault(layer.whole, []).append(layer.name)
    told = [f"{_listed(list(dict.fromkeys(names)))} ({why})" for why, names in reasons.items()]
    count, every = len(plan.whole), len(plan.layers)
    if not told:
        return ""
    who = "All layers run" if count == every else f"Of {plural(every, 'layer')} {count} run"
    return f"{who}{'s' * (count == 1 < every)} whole on every rank: {'; '.join(told)}."


def memory(plan: MeshPlan) -> str:
    """How much a rank needs, in a sentence."""
    kept = f", and may need {size(plan.memory_limit)}" if plan.memory_limit is not None else ""
    return (
        f"A rank needs {size(plan.rank_bytes)}{kept}: {size(plan.weights)} for weights, gradients "
        f"and optimizer state, {size(plan.activations)} for activations. One rank alone would need "
        f"{size(plan.alone_bytes)}."
    )


def link(plan: MeshPlan) -> str:
    """What ranks are taken to exchange with, in a sentence."""
    source = (
        f"as measured among {plural(plan.link_ranks, 'rank')}"
        if plan.link_ranks
        else "as is usual within a node"
    )
    return (
        f"An exchange takes {short_time(plan.link.latency_s)}, and a rank sends "
        f"{three_digits(plan.link.bytes_per_s / 1e9)} GB/s, {source}."
    )


def rows(plan: MeshPlan) -> list[tuple[str, ...]]:
    """The table: of each layer :data:`HEAD`; then of the outputs, where something is done to them;
    and of all."""
    found: list[tuple[str, ...]] = [
        (
            layer.name,
            ways(layer),
            layer.layout,
            conversion(layer.conversions),
            _bytes(layer.conversions),
            short_time(layer.alone_s),
            short_time(layer.mesh_s),
            size(layer.weights) if layer.weights else "-",
            size(layer.activations) if layer.activations else "-",
        )
        for layer in plan.layers
    ]
    if plan.outputs:
        kept = size(plan.outputs_bytes) if plan.outputs_bytes else "-"
        found.append((
            "(outputs)", "-", "whole", conversion(plan.outputs), _bytes(plan.outputs), "-",
            short_time(plan.outputs_s), "-", kept,
        ))  # fmt: skip
    every = [one for layer in plan.layers for one in layer.conversions] + [*plan.outputs]
    found.append((
        "in all", "", "", "", _bytes(every), short_time(plan.alone_s), short_time(plan.step_s),
        size(plan.weights), size(plan.activations),
    ))  # fmt: skip
    return found


#: Of the columns of :func:`rows`.
HEAD = (
    "layer", "divided by", "gives", "conversion before it", "bytes", "one rank", "on the mesh",
    "weights", "activations",
)  # fmt: skip


def ways(layer: LayerPlan) -> str:
    """How a layer is divided: ``height, filters over model``."""
    words = [way if way == axis else f"{way} over {axis}" for axis, way in layer.ways.items()]
    return ", ".join(words) or "whole"


def conversion(steps: Sequence[ConversionPlan]) -> str:
    """What is done: ``halo exchange``, ``sum, gather``; of gradients alone in brackets."""
    words = [step.what if step.there_bytes else f"({_back(step.what)})" for step in steps]
    counted = {word: words.count(word) for word in words}
    return ", ".join(f"{n} x {word}" if n > 1 else word for word, n in counted.items()) or "-"


def figure_of(plan: MeshPlan) -> go.Figure:
    """Of each layer its time on one rank, divided by the ranks, beside that on the mesh."""
    by_time = sorted(range(len(plan.layers)), key=lambda number: -plan.layers[number].mesh_s)
    shown = [plan.layers[number] for number in sorted(by_time[:MOST_BARS])]
    unit, factor = scale_of(max(layer.mesh_s for layer in shown))
    names = _told_apart([layer.name for layer in shown])
    work, converting = BOX_KINDS["C"].colour, BOX_KINDS["V"].colour

    def draw(figure: go.Figure, row: int) -> None:
        bars = [
            ("work", work, [layer.work_s for layer in shown]),
            ("conversions", converting, [layer.conversions_s for layer in shown]),
        ]
        for name, colour, seconds in bars:
            figure.add_bar(
                y=names, x=[short(factor * s) for s in seconds], name=name, orientation="h",
                marker={"color": colour, "line": {"width": 0}}, row=row, col=1,
                customdata=[_in_full(layer) for layer in shown],
                hovertemplate="%{customdata}<extra></extra>",
            )  # fmt: skip
        figure.add_scatter(
            y=names, x=[short(factor * layer.alone_s / plan.ranks) for layer in shown],
            mode="markers", name="one rank, divided",
            marker={"symbol": "line-ns", "size": 14, "line": {"width": 2.5, "color": _MARK}},
            hovertemplate=f"%{{x}} {unit}: a part of one rank's time<extra></extra>",
            row=row, col=1,
        )  # fmt: skip
        figure.update_layout(barmode="stack", showlegend=False)
        figure.update_yaxes(autorange="reversed", nticks=0, dtick=1, row=row, col=1)
        figure.update_xaxes(title=unit, rangemode="tozero", row=row, col=1)

    of_all = "" if len(shown) == len(plan.layers) else f" of the {MOST_BARS} that take longest"
    legend = [swatch("work", work), swatch("conversions", converting)]
    legend.append(f'<span style="color:{_MARK}">|</span> the time of one rank, divided by all')
    title = f"<b>time of layers</b>{of_all} in a step, on each rank<br>{lines_of(legend)}"
    left = 24 + 7 * max(map(len, names))
    return drawn([Panel([title], max(60, height_of(len(shown))), draw)], left)


def figure_bundle(plan: MeshPlan) -> Bundle:
    """The figure as it stays in a notebook."""
    what = f"Figure: time of layers on the mesh {plan.mesh}."
    return {PLOTLY: figure_of(plan).to_plotly_json(), "text/plain": what}


def _told_apart(names: Sequence[str]) -> list[str]:
    """Of layers that are called several times, and not too long."""
    found: list[str] = []
    for name in names:
        base = name if len(name) <= _SHORT else f"…{name[1 - _SHORT :]}"
        count = 1
        while (one := base if count == 1 else f"{base} ({count})") in found:
            count += 1
        found.append(one)
    return found


def _in_full(layer: LayerPlan) -> str:
    done = conversion(layer.conversions)
    before = f"<br>{done}: {_bytes(layer.conversions)}, {short_time(layer.conversions_s)}"
    return (
        f"{layer.name}: {ways(layer)}<br>{short_time(layer.alone_s)} on one rank, "
        f"{short_time(layer.work_s)} on each rank of the mesh{before if done != '-' else ''}"
    )


def _bytes(steps: Sequence[ConversionPlan]) -> str:
    """That a rank sends, there and back."""
    sent = sum(step.there_bytes + step.back_bytes for step in steps)
    return size(sent) if sent else "-"


def _back(what: str) -> str:
    return f"{'gather' if what == 'slice' else what} of gradients"


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(names[:_NAMED]) + more
