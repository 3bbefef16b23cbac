"""The text that stays of a run, made for a monospaced font.

::

    MLP on digits · finished in 0:42 · 5 epochs on 2 ranks

      loss       0.0312    validation 0.0517
      accuracy   0.9912    validation 0.9833

               samples/s while training        samples
   each rank                      4,902         45,000
         all                      9,804         90,000

      over the whole fit 2,143 samples/s: 1,405 steps 5.97 s, 5 first steps of
      epochs 3.21 s, outside of steps (validation, callbacks, start) 32.8 s

      median step 4.25 ms: work 69%, skew 2%, exchange 22%, other 7%
      31% of its exchange was hidden behind work
      22% of a step is exchange of gradients that nothing hides: make batches
      larger.
      a rank needs up to 512 MB; 12.3 GFLOP/s of the model; 1.23 kJ
      CPU 83%, host mem. up to 41%, network 12 MB/s
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from statistics import fmean

from tnt_notebook import telemetry
from tnt_notebook.dashboard.figures import rates
from tnt_notebook.dashboard.figures.meter_words import meters_in_words
from tnt_notebook.dashboard.figures.wording import (
    clock,
    joules,
    number,
    plural,
    promise,
    rate,
    short_time,
    size,
    three_digits,
)  # fmt: skip
from tnt_notebook.telemetry import Frame, Row, State
from tnt_notebook.telemetry.breakdown import shares, step_s
from tnt_notebook.telemetry.bubble import Idle, actions_s, hidden, idle_of

RANKS_WITH_A_LINE = 16


def summary(
    title: str,
    ranks: int,
    frames: Sequence[Frame],
    state: State,
    error: str | None = None,
    traceback: str = "",
    took: float | None = None,
) -> str:
    """What became of a run: loss and metrics, samples per second, time.

    Args:
        title: What the run is called.
        ranks: How many ranks it had.
        frames: Its frames in order, those of all runs of the cell; may be empty.
        state: How it ended.
        error: Why it failed.
        traceback: Of the ranks.
        took: Seconds that its cell took; the main run of it, where it is not known.

    Returns:
        A text of several lines, but for errors none longer than the title and 79 characters.
    """
    main = telemetry.main_run(frames)
    seconds = telemetry.duration(main) if took is None else took
    blocks = [headline(title, ranks, main, state, seconds)]
    for told in filter(None, (error, traceback)):
        blocks.append(textwrap.indent(told, "  "))
    others = [f"  {line}" for line in other_runs(frames)]
    steps = [*_time(main), *_resources(main)]
    notes = [f"  {line}" for note in notes_of(main) for line in textwrap.wrap(note, 75)]
    parts = (_metrics(main), others, notes, _rates(main), _whole_run(main), steps)
    blocks += ["\n".join(lines) for lines in parts if lines]
    return "\n\n".join(blocks)


def headline(title: str, ranks: int, frames: Sequence[Frame], state: State, took: float) -> str:
    """The first line: what it was, how it ended, how long it took."""
    ended = {"running": "running for", "finished": "finished in"}.get(state, f"{state} after")
    rows = telemetry.epoch_rows(frames)
    what = f"{plural(int(rows[-1]['epoch'] or 0), 'epoch')} on " if rows else ""
    return f"{title} · {ended} {clock(took)} · {what}{plural(ranks, 'rank')}"


def notes_of(frames: Sequence[Frame]) -> list[str]:
    """Since when the loss was NaN; the plan that was followed; what ranks did with their gradients,
    where that gives up something; with their input, where each did the work of all; and what of it
    they could not read."""
    if not frames:
        return []
    last = frames[-1]
    names = ("diverged", "plan", "exchange", "input", "skipped")
    notes = (last.get(name) for name in names)
    return [str(note) for note in notes if note]


def metric_pairs(frames: Sequence[Frame]) -> list[tuple[str, float | None, Row]]:
    """Each metric with its final value, and its validation as a row of none or one."""
    logs = telemetry.final_logs(frames)
    return [
        (name, value, {key: logs[key] for key in (f"val_{name}",) if key in logs})
        for name, value in logs.items()
        if not name.startswith("val_")
    ]


def other_runs(frames: Sequence[Frame]) -> list[str]:
    """A line for each run beside the main one: ``evaluate: loss 0.0517, accuracy 0.9833, 0:02``."""
    main = telemetry.main_run(frames)
    lines = []
    for run in telemetry.runs(frames):
        if run != main:
            logs = [f"{name} {number(value)}" for name, value in telemetry.final_logs(run).items()]
            words = ", ".join([*logs, clock(telemetry.duration(run))])
            lines.append(f"{run[-1]['phase']}: {words}")
    return lines


def _metrics(frames: Sequence[Frame]) -> list[str]:
    pairs = metric_pairs(frames)
    width = max((len(name) for name, *_ in pairs), default=0)
    return [
        f"  {name:<{width}}   {number(value):>8}"
        + "".join(f"    validation {number(v):>8}" for v in validation.values())
        for name, value, validation in pairs
    ]


def _rates(frames: Sequence[Frame]) -> list[str]:
    """Samples per second and in all; by rank where ranks differ."""
    if not sum(telemetry.total_samples(frames)):
        return []
    parts, head = rates.parts(frames), ""
    if len(parts) > RANKS_WITH_A_LINE:
        by_rate = sorted(parts, key=lambda part: part.samples_per_s)
        head = "   (slowest, median and fastest rank)"
        parts = [by_rate[0], by_rate[len(by_rate) // 2], by_rate[-1]]
    rows = [*parts, rates.whole(frames)._replace(who="all" if parts else "")]
    width = max(len(row.who) for row in rows)
    return [
        f"  {'':>{width}}   samples/s while training        samples{head}",
        *(f"  {r.who:>{width}}   {rate(r.samples_per_s):>24}   {r.samples:>12,}" for r in rows),
    ]


def whole_run(frames: Sequence[Frame]) -> str:
    """Samples per second over the whole run, and where its time went, in a sentence; of one without
    steps, nothing."""
    spent = telemetry.spent(frames)
    if spent is None or not sum(telemetry.total_samples(frames)):
        return ""
    steps_s, first_s = spent["steps_s"], spent["first_steps_s"]
    epochs = "an epoch" if spent["first_steps"] == 1 else "epochs"
    parts = [
        f"{plural(spent['steps'], 'step')} {short_time(steps_s)}",
        f"{plural(spent['first_steps'], 'first step')} of {epochs} {short_time(first_s)}",
        "outside of steps (validation, callbacks, start) "
        + short_time(telemetry.duration(frames) - steps_s - first_s),
    ]
    whole = ", ".join(parts if spent["steps"] else parts[1:])
    of_all = rate(telemetry.whole_run_samples_per_s(frames))
    return f"over the whole {frames[-1]['phase']} {of_all} samples/s: {whole}"


def _whole_run(frames: Sequence[Frame]) -> list[str]:
    return [f"  {line}" for line in textwrap.wrap(whole_run(frames), 75)]


def _time(frames: Sequence[Frame]) -> list[str]:
    of_ranks = telemetry.breakdowns(frames)
    if not of_ranks:
        return []
    worth_a_word = {part: share for part, share in shares(of_ranks).items() if share >= 0.005}
    parts = ", ".join(f"{part} {share:.0%}" for part, share in worth_a_word.items())
    step = short_time(step_s(of_ranks))
    promised = [f"  {words}" for words in filter(None, [promise(frames)])]
    sentence = [f"  {line}" for line in textwrap.wrap(telemetry.limit_of(frames), 75)]
    return [f"  median step {step}: {parts}", *promised, *_median_step(frames), *sentence]


def _median_step(frames: Sequence[Frame]) -> list[str]:
    """Of a pipeline, why ranks were idle; else how much of the exchange work hid."""
    step = telemetry.median_step(frames)
    if step is None:
        return []
    if idle := list(idle_of(step).values()):
        of_each = zip(Idle._fields, zip(*idle, strict=True), strict=True)
        means = {name: fmean(seconds) / actions_s(step) for name, seconds in of_each}
        why = ", ".join(f"{name} {share:.0%}" for name, share in means.items() if share >= 0.005)
        formula = f", by the formula {step['formula']:.0%}" if "formula" in step else ""
        return [f"  it was idle for {sum(means.values()):.0%}{formula}: {why}"]
    if not (shares := hidden(step)):
        return []
    return [f"  {fmean(shares.values()):.0%} of its exchange was hidden behind work"]


def _resources(frames: Sequence[Frame]) -> list[str]:
    memory = telemetry.memory_of(frames)
    flops, energy = telemetry.flop_rate(frames), telemetry.energy_of(frames)
    parts = []
    if memory:
        parts.append(f"a rank needs up to {size(max(memory))}")
    if flops:
        parts.append(f"{three_digits(1e-9 * flops)} GFLOP/s of the model")
    if energy is not None:
        parts.append(joules(energy))
    meters = [f"  {line}" for line in textwrap.wrap(meters_in_words(frames), 75)]
    return [*([f"  {'; '.join(parts)}"] if parts else []), *meters]
