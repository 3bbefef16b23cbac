"""What ``%tnt_bench training`` leaves: sentences, a figure, and a report in one file."""

import re
import stat
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.plan.test_prediction import CHAIN, NAMES, PROFILE
from tests.telemetry.test_scaling import a_run
from tnt_notebook.dashboard.reports.scaling import Scaling
from tnt_notebook.plan.families import make
from tnt_notebook.plan.overheads import Overheads
from tnt_notebook.plan.prediction import as_json, plan_of
from tnt_notebook.telemetry.scaling import Measured, Question

HOST = {
    "host": "node1", "processor": "Fast & <Good>", "cores": [0], "load": 0.25, "gpus": [],
    "links": "shared memory", "energy": "no counters", "versions": {"Keras": "3.15.1"},
}  # fmt: skip
PARTS = {"input": 0.0, "work": 0.5, "wait": 0.0, "skew": 0.0, "exchange": 0.0, "other": 0.14}


def a_plan(ranks: int, batch: int) -> dict[str, object]:
    """Of whole copies: layers take 5 s for 64 samples, a tenth more where other ranks compute, and
    the rest of a step 1.4 s: ten times what is measured."""
    long = 5 / 16 * batch / ranks / 64
    forward, inputs, weights = (
        [long * s for s in part] for part in (PROFILE.forward, PROFILE.inputs, PROFILE.weights)
    )
    profile = replace(PROFILE, forward=forward, inputs=inputs, weights=weights)
    beside = Overheads(step_s=1.4, busy=1.1)
    whole = make("1f1b", 1, 1)
    return as_json(plan_of(CHAIN, profile, NAMES, whole, [], batch, ranks, beside))


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
    plans = {(n, mode): a_plan(n, 64 * (n if mode == "weak" else 1)) for n, mode in asked.turns()}
    found = Measured(asked, machine, runs, plans, took_s=42.0, complete=complete)
    command = "%%tnt_bench training --ranks 1,2,4\nmodel.fit(x < 3)"
    return Scaling(found, command)


def test_rows_have_what_was_planned_beside_what_was_measured():
    rows = {(row["mode"], row["ranks"]): row for row in a_scaling().rows}
    assert len(rows) == 6
    assert rows["strong", 1]["expected_efficiency"] == pytest.approx(1.0)
    # 6.4 s on one rank; on four of batches as large 1.1 x 1.25 + 1.4 s, or else 1.1 x 5 + 1.4 s.
    strong, weak = 6.4 / 2.775 / 4, 6.4 / 6.9
    assert rows["strong", 4]["expected_efficiency"] == pytest.approx(strong)
    assert rows["weak", 4]["expected_efficiency"] == pytest.approx(weak)
    assert rows["weak", 4]["expected_samples_per_s"] == pytest.approx(102 * 4 * weak)
    notes = " ".join(a_scaling(options={"exchange": "late"}).notes)
    assert "a step took 0.10 times what its plan says" in notes


def test_input_that_every_rank_makes_comes_no_sooner_on_more():
    def expected(waits: float, shared: bool) -> dict:
        found = a_scaling().found
        parts = {**PARTS, "input": waits}
        runs = [replace(run, parts=parts, shared_input=shared) for run in found.runs]
        rows = Scaling(replace(found, runs=runs), "").rows
        return {(row["mode"], row["ranks"]): row["expected_efficiency"] for row in rows}

    usual = expected(0.0, True)
    assert expected(0.05, True) == usual == expected(0.5, False)  # too little; and each its own
    slow = expected(0.5, True)
    assert slow["strong", 4] == pytest.approx(1 / 4) == slow["weak", 4]


def test_without_a_plan_nothing_is_expected():
    found = replace(a_scaling().found, plans={}, unplanned="Model has a train_step of its own.")
    bench = Scaling(found, "")
    assert all(row["expected_efficiency"] is None for row in bench.rows)
    assert "Nothing was planned: Model has a train_step of its own." in bench.notes
    assert "planned" not in bench.verdict and "planned" not in {t.name for t in bench.figure.data}
    assert "planned" not in " ".join(note.text for note in bench.figure.layout.annotations)


def test_sentences():
    scaling = a_scaling(rounds=3)
    assert scaling.headline == (
        "strong and weak scaling on 1, 2, 4 ranks: medians of 3 fits each, in interleaved rounds"
    )
    assert scaling.verdict.startswith(
        "Strong: 4 ranks train 245 samples/s with the same batch, 2.40 times 1 rank, an efficiency "
        "of 60%; as planned: 58%."
    )
    assert "Weak: 4 ranks train 347 samples/s with a batch of 256, 3.40 times" in scaling.verdict
    assert scaling.verdict.endswith("Energy is not measured: node1: no counters. --watts W "
                                    "estimates it.")  # fmt: skip
    assert ("4 ranks, weak", "Ranks & 4.") in scaling.limits() and len(scaling.limits()) == 5
    found = scaling.found
    crowded = Scaling(replace(found, machine=[HOST] * 4), "")
    assert "On 4 ranks 4 of them share a core." in crowded.notes
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
