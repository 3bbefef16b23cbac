"""Measures how fast ranks exchange, and concludes which algorithm to take for which size.

On all ranks of a world::

    question = tuning.Question(max_bytes=1 << 20)
    result = tuning.measure(comm.world(), question)       # plain data, the same on all ranks
    tuning.rules_of(result)                               # for rules.save()

`measure` times the contestants in interleaved rounds, `shift` is the least that any of them must
move, `conclude` fits the cost model and finds the best algorithm of each size.
"""

from __future__ import annotations

from tnt_notebook.comm.tuning.conclude import rules_of
from tnt_notebook.comm.tuning.contestants import Question
from tnt_notebook.comm.tuning.measure import Report, measure

__all__ = ["Question", "Report", "measure", "rules_of"]
