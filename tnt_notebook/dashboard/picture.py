"""The card as it stood at the end of a run, in HTML: the elements of ``widgets/card.js``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

from tnt_notebook import telemetry
from tnt_notebook.dashboard import step_layout
from tnt_notebook.dashboard.summary import RANKS_WITH_A_LINE, metric_pairs, other_runs, whole_run
from tnt_notebook.dashboard.wording import clock, number, rate
from tnt_notebook.telemetry import PARTS, Frame, State
from tnt_notebook.telemetry.kinds import BOX_KINDS
from tnt_notebook.telemetry.step_trace import StepTrace, extent_s

MOST_ROWS = 16
MOST_BOXES = 1500  # 20 bytes each
WIDTH = 2000  # units of the picture: half a pixel of most screens
GAP = 4  # units, so that equal neighbours are two


def card_html(title: str, frames: Sequence[Frame], state: State, error: str | None) -> str:
    """All of it, hidden where there are no styles."""
    run = telemetry.main_run(frames)
    took = clock(telemetry.duration(run))
    parts = [
        f'<div class="tnt-header"><div class="tnt-title" role="heading" aria-level="3">'
        f'{escape(title)}</div><span class="tnt-pill" data-state="{state}">{state}</span></div>',
        _div("line", _span("where", _where(run)), _span("when", f"took {took}")),
        f'<p class="tnt-error">{escape(error)}</p>' if error else "",
        _metrics_html(run),
        *(_div("caption", escape(line)) for line in other_runs(frames)),
        _time_html(step_layout.time_of(run)),
        step_html(telemetry.median_step(run)),
        _ranks_html(run),
        _div("caption", escape(whole_run(run))) if run else "",
    ]
    # Sanitizers drop an attribute without a value.
    head = f'<div class="tnt-card tnt-picture" data-state="{state}" hidden="hidden">'
    return f"{head}{''.join(parts)}</div>"


def step_html(trace: StepTrace | None) -> str:
    """A step; at most 60 kB."""
    if trace is None or not trace["rows"]:
        return ""
    rows = [
        _row(f"rank {row.rank}", _svg(row, extent_s(trace)), "share", f"{row.idle:.0%} idle")
        for row in step_layout.rank_rows(trace, MOST_BOXES, MOST_ROWS)
    ]
    legend = [_entry(k.words, k.colour, k.letter, k.ink) for k in step_layout.kinds_in(trace)]
    return _div(
        "timeline",
        _heading(step_layout.heading(trace)),
        _div("steps", *rows),
        _div("legend", *legend),
    )


def _where(frames: Sequence[Frame]) -> str:
    if not frames or not frames[-1]["epoch"]:
        return "no step was done"
    last = frames[-1]
    step = f"step {last['step']:,}" + (f" of {last['steps']:,}" if last["steps"] else "")
    if last["phase"] != "fit":
        return f"{last['phase']} · {step}"
    return f"epoch {last['epoch']:,} of {last['epochs']:,} · {step}"


def _metrics_html(frames: Sequence[Frame]) -> str:
    tiles = [
        _div(
            "tile",
            _div("name", escape(name.replace("_", " "))),
            _div("number", number(value)),
            *(_div("validation", f"validation {number(v)}") for v in validation.values()),
        )
        for name, value, validation in metric_pairs(frames)
    ]
    return _div("metrics", *tiles) if tiles else ""


def _time_html(time: dict[str, Any]) -> str:
    if not time:
        return ""
    rows = []
    for name, share in time["rows"]:
        bars = (
            f'<div style="background: {part.colour}; width: {share[one]:.1%}"></div>'
            for one, part in PARTS.items()
        )
        rows.append(_row(name, _div("parts", *bars), "share", f"{share['work']:.0%} work"))
    return _div(
        "time",
        _heading("Where a step goes", time["step"]),
        f'<p class="tnt-limit">{escape(time["limit"])}</p>',
        _div("ranks", *rows),
        _div("legend", *(_entry(name, part.colour) for name, part in PARTS.items())),
    )


def _svg(row: step_layout.RankRow, seconds: float) -> str:
    """The boxes of a rank; all of a colour are one path."""
    paths: dict[tuple[str, bool], str] = defaultdict(str)
    for box in row.boxes:
        x, end = (round(WIDTH * time / seconds) for time in (box.begin, box.end))
        y, height = (17, 5) if BOX_KINDS[box.kind].role == "beside" else (0, 16)
        width = max(1, end - x - (GAP if end - x > 3 * GAP else 0))
        paths[box.kind, row.is_faint(box)] += f"M{x} {y}h{width}v{height}h-{width}"
    drawn = ""
    # Those that may lie under others first.
    for kind, faint in sorted(paths, key=lambda path: not BOX_KINDS[path[0]].below):
        opacity = step_layout.FAINT if faint else 1
        fill, path = BOX_KINDS[kind].colour, paths[kind, faint]
        drawn += f'<path fill="{fill}" opacity="{opacity}" d="{path}"/>'
    sharp = 'preserveAspectRatio="none" shape-rendering="crispEdges"'
    return f'<svg viewBox="0 0 {WIDTH} 22" {sharp}>{drawn}</svg>'


def _ranks_html(frames: Sequence[Frame]) -> str:
    rates = telemetry.median_rates(frames)
    if not sum(rates):
        return ""
    low, high = min(rates), max(rates)
    if len(rates) > RANKS_WITH_A_LINE:
        slowest = f"slowest: rank {rates.index(low)}, {rate(low)}/s"
        fastest = f"fastest: rank {rates.index(high)}, {rate(high)}/s"
        body = _div("caption", f"{slowest} · {fastest}")
    else:
        rows = []
        for rank, value in enumerate(rates):
            level = _div("level", f'<div style="width: {value / high:.1%}"></div>')
            rows.append(_row(f"rank {rank}", level, "rate", rate(value)))
        body = _div("ranks", *rows)
    total = f"{rate(sum(rates) / frames[-1]['sharing'])} in all"
    return _div("throughput", _heading("Samples per second while training", total), body)


def _heading(words: str, total: str = "") -> str:
    return _div("line tnt-heading", f"<span>{words}</span>", _span("total", total))


def _row(name: str, middle: str, what: str, right: str) -> str:
    """Of a rank, or of all."""
    return _div("rank", _span("rank-name", name), middle, _span(what, right))


def _entry(words: str, colour: str, letter: str = "", ink: str | None = None) -> str:
    """Of a legend."""
    style = f"background: {colour}; color: {ink or 'inherit'}"
    return f'<span><i class="tnt-letter" style="{style}">{letter}</i>{words}</span>'


def _div(name: str, *inside: str) -> str:
    return f'<div class="tnt-{name}">{"".join(inside)}</div>'


def _span(name: str, inside: str) -> str:
    return f'<span class="tnt-{name}">{inside}</span>'
