"""The report of a study of scaling: one HTML file, which opens without a network and in any theme.

All is in it: plotly's code, the figure, tables, machine, versions, and what to type to repeat it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from tnt_notebook import files
from tnt_notebook.dashboard.card import assets
from tnt_notebook.dashboard.figures.wording import plural, rate, short_time
from tnt_notebook.dashboard.reports.scaling_table import columns_of
from tnt_notebook.telemetry.scaling import Measured, Run

_LEFT = {"scaling", "on", "what limits training", "ranks are", "is", "mode"}
_MOST_HOSTS = 8  # of more, only how many there are


@dataclass(frozen=True)
class Report:
    """What is in it; as in :class:`~tnt_notebook.dashboard.reports.scaling.Scaling`."""

    found: Measured
    rows: Sequence[dict[str, Any]]
    figure: go.Figure
    verdict: str
    limits: Sequence[tuple[str, str]]
    notes: Sequence[str]
    command: str
    complete: bool


def write(report: Report, path: Path, force: bool) -> Path:
    """Writes the report.

    Raises:
        FileExistsError: it is there, and may not be replaced.
    """
    return files.write_new(path, page(report), force)


def page(report: Report) -> str:
    """The report as HTML."""
    found, rows, asked = report.found, report.rows, report.found.question
    title = f"{' and '.join(asked.modes).capitalize()} scaling on {_up_to(asked.ranks)} ranks"
    when = time.strftime("%d %B %Y, %H:%M")
    took = short_time(found.took_s)
    whole = "" if report.complete else '<p class="broken">It was broken off: not all is here.</p>'
    figure = report.figure.to_html(
        full_html=False, include_plotlyjs=False, div_id="figure",
        config={"responsive": True, "displaylogo": False},
    )  # fmt: skip
    limits = "".join(
        f"<dt>{escape(where)}</dt><dd>{escape(sentence)}</dd>" for where, sentence in report.limits
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in [*_ABOUT, *report.notes])
    sections = [
        f'<header><h1>{escape(title)}</h1><p class="quiet">{escape(when)} · {escape(took)} of '
        f"measuring · {plural(asked.rounds, 'round')}</p>{whole}</header>",
        f'<div class="tiles">{"".join(_tiles(rows))}</div>',
        f"<p>{escape(report.verdict)}</p>",
        f'<section class="figure">{figure}</section>',
        f"<section><h2>By number of ranks</h2>{_table(*columns_of(rows, asked))}</section>",
        f"<section><h2>What limits training</h2><dl>{limits}</dl></section>" if limits else "",
        f"<section><h2>How it was measured</h2><ul>{notes}</ul></section>",
        f"<section><h2>To repeat it</h2><pre>{escape(report.command)}</pre></section>",
        f"<section><h2>Machine and versions</h2>{_machine(found.machine)}</section>",
        f"<section><details><summary>All fits</summary>{_table(*_fits(found.runs))}</details>"
        "</section>",
    ]
    style = assets.text("report.css")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{style}</style>"
        f"<script>{get_plotlyjs()}</script></head>\n<body><main>{''.join(sections)}</main></body>"
        "</html>\n"
    )


_ABOUT = (
    "Rates are those of the median step, as the ranks count them. The first step of an epoch, "
    "which traces, or begins to read, counts for none; how long it took from the begin of the cell "
    "stands under “first step”.",
    "Rounds are interleaved: each has every number of ranks, so that a machine whose speed changes "
    "does so for all. An efficiency is the median of the ratios within rounds; in brackets, and as "
    "bars in the figure, stand the lowest and the highest.",
    "What was planned starts from the rate that was measured on the fewest ranks. How it changes "
    "is what plans say, as %tnt_plan makes them, for each number of ranks: of the layers, with the "
    "samples of a rank and while all ranks compute, of what a step takes beside them, and of "
    "exchanges; all of it was measured on as many ranks.",
)


def _tiles(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Of each mode, what came of it on the most ranks."""
    found = []
    for mode in dict.fromkeys(row["mode"] for row in rows):
        last = [row for row in rows if row["mode"] == mode][-1]
        width = min(100.0, 100 * last["efficiency"])
        planned = last["expected_efficiency"]
        mark = "" if planned is None else f'<i style="left:{min(100.0, 100 * planned):.1f}%"></i>'
        beside = "" if planned is None else f" · planned {planned:.0%}"
        found.append(
            f'<div class="tile"><span class="quiet">{mode} scaling, {plural(last["ranks"], "rank")}'
            f'</span><b>{last["efficiency"]:.0%}</b><span class="quiet">efficiency{beside}</span>'
            f'<div class="bar"><div style="width:{width:.1f}%"></div>{mark}</div>'
            f"<span>{last['speedup']:.2f} times as fast · {rate(last['samples_per_s'])} samples/s"
            "</span></div>"
        )
    return found


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=left' if name in _LEFT else ''}>{_in_cell(text)}</{tag}>"
            for name, text in zip(head, texts, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{cells("th", head)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _in_cell(text: str) -> str:
    """What is in brackets goes below, in small."""
    before, bracket, spread = text.partition(" (")
    return escape(before) + (
        f"<small>{escape(bracket.strip() + spread)}</small>" if bracket else ""
    )


def _fits(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    head = [
        "round",
        "ranks",
        "mode",
        "batch",
        "median step",
        "samples/s",
        "first step",
        "at the end",
    ]
    rows = [
        [
            str(run.round), str(run.ranks), run.mode, f"{run.batch:,}", short_time(run.step_s),
            rate(run.samples_per_s), short_time(run.first_step_s),
            ", ".join(f"{n} {v:.4g}" for n, v in run.logs.items() if v is not None),
        ]
        for run in runs
    ]  # fmt: skip
    return head, rows


def _machine(found: Sequence[dict[str, Any]]) -> str:
    if not found:
        return "<p>It was not asked for.</p>"
    hosts = list(dict.fromkeys(one["host"] for one in found))
    named = f": {', '.join(hosts)}" if len(hosts) <= _MOST_HOSTS else ""
    first = found[0]
    gpus = list(dict.fromkeys(gpu for one in found for gpu in one["gpus"]))
    facts = {
        "ranks": f"{len(found)} on {plural(len(hosts), 'host')}{named}",
        "processor": ", ".join(dict.fromkeys(one["processor"] for one in found)),
        "cores of a rank": ", ".join(sorted({str(len(one["cores"])) for one in found})),
        "GPUs": ", ".join(gpus) or "none",
        "links": first["links"],
        "load at the begin": f"{first['load']:.1f} on {first['host']}",
        **first["versions"],
    }
    lines = "".join(f"<dt>{escape(n)}</dt><dd>{escape(str(v))}</dd>" for n, v in facts.items())
    return f"<dl>{lines}</dl>"


def _up_to(ranks: Sequence[int]) -> str:
    *most, last = map(str, ranks)
    return f"{', '.join(most)} and {last}"
