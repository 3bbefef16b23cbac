"""Published throughput of other systems, beside what the package expects of them.

    python -m tests.benchmarks.published            tables
    python -m tests.benchmarks.published FOLDER     and the figure, on light and on dark pages

Of each system the point with the fewest devices says what a sample takes on a device. All others
are predicted from that, the network of the system, the size of its model, and the batch.
"""

import statistics
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from tests.benchmarks.predicted_figure import Groups, written
from tests.benchmarks.published.prediction import Predicted, predicted
from tests.benchmarks.published.systems import System, systems
from tests.benchmarks.report import markdown

GOAL = 0.10


Found = dict[System, list[Predicted]]


def table(found: Found) -> str:
    rows = [["system", "model", "devices", "published", "predicted", "error", "nothing hidden"]]
    for system, points in found.items():
        for number, one in enumerate(points):
            name = [system.name, system.model] if number == 0 else ["", ""]
            published = one.point.throughput
            rates = [f"{rate:,.0f}" for rate in (published, one.throughput)]
            errors = [f"{rate / published - 1:+.1%}" for rate in (one.throughput, one.exposed)]
            rows.append([*name, str(one.point.devices), *rates, *errors])
    return markdown(rows)


def summary(found: Found) -> str:
    head = ["system", "model", "devices", "mean error", "largest", "if linear", "nothing hidden"]
    rows, means = [head], []
    for system, points in found.items():
        mean, largest, linear, exposed = errors(points)
        means.append(mean)
        devices = f"{system.points[0].devices} to {points[-1].point.devices}"
        shown = [f"{error:.1%}" for error in (mean, largest, linear, exposed)]
        rows.append([system.name, system.model, devices, *shown])
    every = [one for points in found.values() for one in points]
    mean, _, linear, exposed = errors(every)
    within = sum(mean <= GOAL for mean in means)
    told = (
        f"{len(every)} points of {len(found)} systems: mean error {mean:.1%}, median "
        f"{statistics.median(abs(one.error) for one in every):.1%} (mean if linear {linear:.1%}, "
        f"with nothing hidden {exposed:.1%}); {within} of {len(found)} systems have a mean error "
        f"of at most {GOAL:.0%}."
    )
    return f"{markdown(rows)}\n\n{told}"


def errors(points: list[Predicted]) -> tuple[float, float, float, float]:
    """Mean and largest error; mean errors if devices do not slow each other down, and if no
    exchange is hidden."""
    rates = [(one.throughput, one.linear, one.exposed) for one in points]
    published = [one.point.throughput for one in points]
    own, linear, exposed = (
        [abs(rate / p - 1) for rate, p in zip(each, published, strict=True)]
        for each in zip(*rates, strict=True)
    )
    return statistics.fmean(own), max(own), statistics.fmean(linear), statistics.fmean(exposed)


def by_machine(found: Found) -> Groups:
    """Published and predicted throughput, over that of the point it was predicted from."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for system, points in found.items():
        first = system.points[0].throughput
        own = [(one.point.throughput / first, one.throughput / first) for one in points]
        groups.setdefault(system.name.split(",")[0], []).extend(own)
    return groups


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="for the figure")
    folder = parser.parse_args().folder
    everything = {system: predicted(system) for system in systems()}
    print(summary(everything), table(everything), sep="\n\n")
    if folder is not None:
        titles = "published, times the first point", "predicted, times the first point"
        written(by_machine(everything), titles, folder, "published")
