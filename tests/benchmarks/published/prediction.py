"""What the package expects of a published system, from the point with the fewest devices."""

import math
from typing import NamedTuple

from tests.benchmarks.published.systems import Point, System
from tnt_notebook.plan.exchange import Gradient, exchange_s
from tnt_notebook.plan.network import Network
from tnt_notebook.plan.network_file import network_of
from tnt_notebook.plan.schedule import Action
from tnt_notebook.plan.simulate import Span, Timeline

#: Which weights there are is not published: as if they were so many alike, all along the way back.
WEIGHTS = 100
#: Of forward and backward the part of backward, behind which an exchange can hide.
BACKWARD = 2 / 3


class Predicted(NamedTuple):
    """A point, and the samples a second that were expected of it.

    Attributes:
        linear: what it would be if each device trained as many as in the first point.
        exposed: what it would be if no exchange went on behind backward.
    """

    point: Point
    throughput: float
    linear: float
    exposed: float

    @property
    def error(self) -> float:
        """Predicted / published - 1."""
        return self.throughput / self.point.throughput - 1


def predicted(system: System) -> list[Predicted]:
    """All points but the first, which says what a sample takes."""
    network = network_of(system.network)
    first, *others = system.points
    of_one = first.throughput / first.devices
    found = []
    for point in others:
        expected, exposed = (
            _throughput(system, network, point, _sample_s(system, network, first, hides), hides)
            for hides in (True, False)
        )
        found.append(Predicted(point, expected, point.devices * of_one, exposed))
    return found


def _throughput(
    system: System, network: Network, point: Point, sample_s: float, hides: bool
) -> float:
    """Samples a second, where one takes so long on a device.

    Gradients are exchanged after the last of the micro-batches, while it goes back if that hides
    the exchange.
    """
    micro_s = point.samples * sample_s
    step_s = point.steps * micro_s
    turns = (1 - BACKWARD) * micro_s if hides else micro_s
    spans = Span(0, Action("F", 0, 0), 0.0, turns), Span(0, Action("B", 0, 0), turns, micro_s)
    last = Timeline("", 1, 1, spans)
    size = math.ceil(system.bytes / WEIGHTS)
    gradients = [Gradient(size, part=1 - n / WEIGHTS) for n in range(WEIGHTS)]
    everyone = point.devices, point.devices
    step_s += exchange_s(last, [0], [gradients], *everyone, network)
    return point.devices * point.steps * point.samples / step_s


def _sample_s(system: System, network: Network, point: Point, hides: bool) -> float:
    """With which a point is met: by bisection, as a longer one makes it slower."""
    low, high = 0.0, point.devices / point.throughput
    for _ in range(60):
        middle = (low + high) / 2
        if _throughput(system, network, point, middle, hides) > point.throughput:
            low = middle
        else:
            high = middle
    return high
