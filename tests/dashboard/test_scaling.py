"""What ``%tnt_bench training`` leaves: sentences, a figure, and a report in one file."""

import re
import stat
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.telemetry.test_scaling import a_run
from tnt_notebook.dashboard.reports.scaling import Scaling
from tnt_notebook.telemetry.scaling import Measured, Question

HOST = {
    "host": "node1", "processor": "Fast & <Good>", "cores": [0], "load": 0.25, "gpus": [],
    "links": "shared memory", "energy": "no counters", "versions": {"Keras": "3.15.1"},
}  # fmt: skip
PARTS = {"input": 0.0, "work": 0.5, "wait": 0.0, "skew": 0.0, "exchange": 0.0, "other": 0.14}


def a_scaling(complete: bool = True, **question: object) -> Scaling:
    """Batches of 64, of which one rank does 100 samples a second."""
    asked = Question((1, 2, 4), **question)
    machine = [{**HOST, "cores": [rank]} for rank in range(4)]
    rates = {(1, "strong"): 100.0, (1, "weak"): 100.0, (2, "strong"): 170.0, (2, "weak"): 180.0,
             (4, "strong"): 240.0, (4, "weak"): 340.0}  # fmt: skip
    runs = [
        a_run(
            ranks, mode, round, rates[ranks, mode] * (1 + 0.01 * round),
            64 * (ranks if mode == "weak" else 1), parts=PARTS, limit=f"Ranks & {ranks}.",
        )
        for round in range(1, asked.rounds + 1)
        for ranks, mode in asked.turns()
    ]  # fmt: skip
    networks = {n: {"algorithm": "ring", "latency_s": 1e-5, "bytes_per_s": 1e9} for n in (2, 4)}
    steps = {(n, mode): 0.5 if mode == "weak" else 0.5 / n
             for n in asked.ranks for mode in asked.modes}  # fmt: skip
    found = Measured(
        asked, machine, runs, steps, networks, 4_000_000, took_s=42.0, complete=complete
    )
    command = "%%tnt_bench training --ranks 1,2,4\nmodel.fit(x < 3)"
    return Scaling(found, command)


def test_rows_have_what_was_planned_beside_what_was_measured():
    rows = {(row["mode"], row["ranks"]): row for row in a_scaling().rows}
    assert len(rows) == 6
    assert rows["strong", 1]["expected_efficiency"] == pytest.approx(1.0)
    # Work falls as 1/p, the rest stays, and an exchange costs a little.
    assert 0.55 < rows["strong", 4]["expected_efficiency"] < 0.61
    assert 0.99 < rows["weak", 4]["expected_efficiency"] < 1.0
    assert rows["weak", 4]["expected_samples_per_s"] > 395


def test_sentences():
    scaling = a_scaling(rounds=3)
    assert scaling.headline == (
        "strong and weak scaling on 1, 2, 4 ranks: medians of 3 fits each, in interleaved rounds"
    )
    assert scaling.verdict.startswith(
        "Strong: 4 ranks train 245 samples/s with the same batch, 2.40 times 1 rank, an efficiency "
        "of 60%; as planned: "
    )
    assert "Weak: 4 ranks train 347 samples/s with a batch of 256, 3.40 times" in scaling.verdict
    assert scaling.verdict.endswith("Energy is not measured: node1: no counters. --watts W "
                                    "estimates it.")  # fmt: skip
    assert ("4 ranks, weak", "Ranks & 4.") in scaling.limits() and len(scaling.limits()) == 5
    found = scaling.found
    crowded = replace(found, machine=[HOST] * 4, unplanned="Model has a train_step of its own")
    notes = " ".join(Scaling(crowded, "").notes)
    assert "On 4 ranks 4 of them share a core." in notes and "no plan of the model" in notes
    assert Scaling(replace(found, runs=[]), "").verdict == "Nothing was measured."
    assert Scaling(replace(found, runs=found.runs[:1]), "").verdict == "Only 1 rank was measured."
    assert a_scaling(watts=9.0).notes[0].startswith("Energy is an estimate, by 9 W a rank: ")


@pytest.mark.parametrize("modes", [("strong", "weak"), ("weak",)])
def test_a_figure_has_measured_planned_and_ideal_for_each_mode(modes):
    figure = a_scaling(modes=modes).figure
    names = [trace.name for trace in figure.data if trace.type == "scatter"]
    assert sorted(names) == sorted(["measured", "planned", "ideal"] * 2 * len(modes))
    assert {trace.name for trace in figure.data if trace.type == "bar"} == {"work", "other"}
    assert len(figure.to_json()) < 100_000
    titles = " ".join(note.text for note in figure.layout.annotations)
    assert all(f"<b>{mode} scaling</b>" in titles for mode in modes)
    measured = next(trace for trace in figure.data if trace.name == "measured")
    assert list(measured.x) == [1, 2, 4] and max(measured.error_y.array) > 0


class _Outside(HTMLParser):
    """What a page asks others for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list) -> None:
        given = dict(attributes)
        self.found += [given[name] for name in ("src", "href", "srcset") if name in given]
        self.found += [tag] if tag in ("link", "iframe", "object", "embed", "base") else []


def test_a_report_is_one_file_of_all_and_is_not_overwritten(tmp_path: Path):
    scaling = a_scaling(complete=False)
    path = scaling.report(tmp_path / "scaling.html")
    text = path.read_text(encoding="utf-8")
    page = _Outside()
    page.feed(re.sub(r"(?s)<script.*?</script>", "", text))  # plotly's own code has strings of all
    assert page.found == [] and "@import" not in text.partition("</style>")[0]
    assert not re.search(r"<script[^>]+src", text) and text.count("plotly.js v") >= 1
    for part in (
        "4 ranks, weak", "Ranks &amp; 4.", "Fast &amp; &lt;Good&gt;", "3.15.1", "broken off",
        "%%tnt_bench training --ranks 1,2,4\nmodel.fit(x &lt; 3)", "prefers-color-scheme: dark",
    ):  # fmt: skip
        assert part in text, part
    with pytest.raises(FileExistsError, match=r"scaling.html is there already; force=True"):
        scaling.report(path)
    assert scaling.report(path, force=True) == path
    assert [one.name for one in tmp_path.iterdir()] == ["scaling.html"]  # and nothing beside it
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
