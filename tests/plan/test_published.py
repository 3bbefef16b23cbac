"""Predictions of published points: ``python -m tests.benchmarks.published`` shows them all."""

import statistics

import pytest

from tests.benchmarks.published.prediction import predicted
from tests.benchmarks.published.systems import systems
from tnt_notebook.plan.network_file import network_of

SYSTEMS = systems()


def test_every_system_has_points_for_more_devices():
    assert len(SYSTEMS) == 20 and sum(len(system.points) - 1 for system in SYSTEMS) == 47
    for system in SYSTEMS:
        devices = [point.devices for point in system.points]
        assert devices == sorted(set(devices)) and len(devices) > 1
        assert network_of(system.network).levels


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: f"{system.name}, {system.model}")
def test_what_is_exchanged_only_ever_takes_time(system):
    for one in predicted(system):
        # Where the first point has an exchange too, a device is faster than it seems there.
        assert one.exposed <= one.throughput * 1.02
        assert one.throughput == pytest.approx(one.linear, rel=0.02) or one.throughput < one.linear


def test_half_of_the_points_are_met_within_seven_percent():
    errors = [abs(one.error) for system in SYSTEMS for one in predicted(system)]
    assert statistics.median(errors) < 0.07 and statistics.fmean(errors) < 0.11
    means = [statistics.fmean(abs(one.error) for one in predicted(system)) for system in SYSTEMS]
    assert sum(mean <= 0.1 for mean in means) >= 13
