"""Memory and energy of a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tnt_notebook.parallel.observe.meters import Rapl, memory

RANGE = 1000


def zone(folder: Path, name: str, energy: int) -> Path:
    made = folder / name
    made.mkdir(exist_ok=True)
    (made / "energy_uj").write_text(f"{energy}\n")
    (made / "max_energy_range_uj").write_text(f"{RANGE}\n")
    return made


def test_energy_is_that_of_all_processors(tmp_path):
    zone(tmp_path, "intel-rapl:0", 900)
    zone(tmp_path, "intel-rapl:1", 100)
    zone(tmp_path, "intel-rapl:0:0", 50)  # a part of the first
    rapl = Rapl(tmp_path)
    assert rapl.joules() == 0
    zone(tmp_path, "intel-rapl:0", 950)
    zone(tmp_path, "intel-rapl:1", 130)
    zone(tmp_path, "intel-rapl:0:0", 99)
    assert rapl.joules() == pytest.approx(80e-6)
    zone(tmp_path, "intel-rapl:0", 20)  # it began anew: 950 ... 1000, 0 ... 20
    assert rapl.joules() == pytest.approx(151e-6)


def test_without_a_counter_there_is_no_energy(tmp_path):
    assert Rapl(tmp_path).joules() is None
    assert Rapl(tmp_path / "nowhere").joules() is None


def test_a_counter_that_may_not_be_read_any_more(tmp_path):
    found = zone(tmp_path, "intel-rapl:0", 5)
    rapl = Rapl(tmp_path)
    (found / "energy_uj").unlink()
    assert rapl.joules() is None


def test_memory_grows_with_what_is_held():
    before = memory()
    held = bytearray(b"x" * (64 << 20))
    assert memory() - before > 0.9 * len(held)
