"""Where the time of a whole run went, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from tnt_notebook.dashboard.figures.wording import short_time
from tnt_notebook.telemetry.activities import DOING, LETTER, Ribbon, totals

#: A part of the run that is worth a word.
_WORTH_A_WORD = 0.01
#: Others do it, too, if for half as long.
_ALIKE = 0.5


def time_summary(ribbon: Ribbon, step: float | None = None) -> str:
    """``19 s: importing 4 s, tracing 3 s, training 2.5 s (median step 5.5 ms), end of epoch 9.2 s
    on rank 0``

    Args:
        step: seconds of the median step, if it is known.
    """
    whole = ribbon.seconds
    of_ranks = {
        rank: {LETTER["start"]: own.begins[0] - ribbon.began} | totals(own, ribbon.ended)
        for rank, own in sorted(ribbon.ranks.items())
        if own.begins
    }
    words, alone = [], False
    for letter, doing in DOING.items():
        seconds = {rank: of_rank.get(letter, 0.0) for rank, of_rank in of_ranks.items()}
        longest = max(seconds.values(), default=0.0)
        if longest < _WORTH_A_WORD * whole or longest < 0.05:
            continue
        who = [rank for rank, s in seconds.items() if s > _ALIKE * longest]
        if doing.name == "wait" and alone:
            continue  # for that
        some = 2 * len(who) <= len(seconds)
        alone |= some
        said = f"{doing.words} {_seconds(longest)}"
        if doing.name == "train" and step is not None:
            said += f" (median step {short_time(step)})"
        words.append(said + (f" on {_ranks(who)}" if some else ""))
    return f"{_seconds(whole)}: {', '.join(words)}" if words else ""


def _seconds(seconds: float) -> str:
    """``2.5 s``, ``19 s``, ``12 min``."""
    if seconds >= 600:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{float(f'{seconds:.2g}'):g} s"


def _ranks(who: Sequence[int]) -> str:
    if len(who) > 4:
        return f"{len(who)} ranks"
    return f"rank{'s' * (len(who) > 1)} {', '.join(map(str, who))}"
