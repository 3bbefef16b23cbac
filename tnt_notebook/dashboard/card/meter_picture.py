"""What ranks used of their machines over a run, in HTML: below what each did, over the same time.

``widgets/paint_meters.js`` paints the same on a canvas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tnt_notebook.dashboard.card.elements import div, row
from tnt_notebook.dashboard.figures.meter_words import measured
from tnt_notebook.telemetry.activities import Ribbon
from tnt_notebook.telemetry.curves import MOST_LINES, meters_in, points, said
from tnt_notebook.telemetry.meters import Meter
from tnt_notebook.telemetry.sampling import thinned

WIDTH = 2000  # units of a row: half a pixel of most screens
HEIGHT = 20
_POINTS = 400  # of a row, for all its lines together: 8 bytes each

Place = tuple[int, float]


def meter_rows(ribbon: Ribbon) -> Iterator[str]:
    """A row for each meter that there is; at most 30 kB in all."""
    curves = ribbon.meters
    ranks = 1 + max(ribbon.ranks, default=0)
    every = points(curves, curves.at, ranks)
    for meter in meters_in(curves):
        some = [(second, numbers[meter.letter]) for second, numbers in every
                if meter.letter in numbers]  # fmt: skip
        highest = meter.top or max(n for _, numbers in some for n in numbers if n is not None) or 1
        lines: list[list[Place]] = []
        for line in range(max(len(numbers) for _, numbers in some)):
            own = [(second, numbers[line]) for second, numbers in some if line < len(numbers)]
            there = [(_x(second, ribbon), HEIGHT - 1 - min(number / highest, 1) * (HEIGHT - 2))
                     for second, number in own if number is not None]  # fmt: skip
            if there:
                lines.append(there)
        few = [thinned(line, max(40, _POINTS // len(lines))) for line in lines]
        words = escape(measured(meter.unit, said(curves, meter)))
        svg = _svg(few, meter, is_band=ranks > MOST_LINES)
        yield div("used", row(meter.label, svg, "share", words))


def _svg(lines: Sequence[Sequence[Place]], meter: Meter, is_band: bool) -> str:
    colour = f"var(--tnt-{meter.colour})"
    look = f'fill="none" stroke="{colour}" vector-effect="non-scaling-stroke"'
    drawn = ""
    if is_band and len(lines) == 3:
        least, median, most = lines
        drawn += f'<path fill="{colour}" opacity="0.25" d="M{_path(most)}L{_path(least[::-1])}z"/>'
        lines = [median]
    for line in lines:
        shade = f"M{line[0][0]} {HEIGHT}L{_path(line)}L{line[-1][0]} {HEIGHT}z"
        drawn += f'<path fill="{colour}" opacity="{0.2 / len(lines):.2g}" d="{shade}"/>'
        drawn += f'<path {look} d="M{_path(line)}"/>'
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f"{drawn}</svg>"
    )


def _path(line: Sequence[Place]) -> str:
    return "L".join(f"{x} {y:.1f}" for x, y in line)


def _x(second: int, ribbon: Ribbon) -> int:
    return round(WIDTH * min(1.0, max(0.0, (second - ribbon.began) / ribbon.seconds)))
