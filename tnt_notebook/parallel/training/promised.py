"""What the plan that a fit follows promises of its steps."""

from __future__ import annotations

import functools
from typing import NamedTuple

from tnt_notebook.keras.adapters import is_of_tf_data
from tnt_notebook.parallel.data import Sharded
from tnt_notebook.parallel.data.batch_size import batch_size_of
from tnt_notebook.parallel.observe.progress import Learn
from tnt_notebook.parallel.training.learning import learnt
from tnt_notebook.parallel.training.session import Session
from tnt_notebook.plan.promise import Promise
from tnt_notebook.telemetry import Phase


class Promised(NamedTuple):
    """Of a run.

    Attributes:
        promise: None: there is no plan, or it is of other batches.
        words: what is said of it; "" where there is no plan.
        learn: what is to be done with steps as they were, as of
            :class:`~tnt_notebook.parallel.observe.progress.Progress`; None where nothing is
            promised.
    """

    promise: Promise | None = None
    words: str = ""
    learn: Learn | None = None


def promised(session: Session, phase: Phase, data: Sharded) -> Promised:
    """What is promised of a run on this data."""
    plan, size = session.options.plan, data.batch_size
    if phase != "fit" or not isinstance(plan, Promise):
        return Promised()
    if size is None and is_of_tf_data(data.adapter):
        size = batch_size_of(data.adapter.get_tf_dataset(), None)
    if size not in (None, plan.batch_size):
        planned = f"the plan is for batches of {plan.batch_size:,} samples"
        return Promised(None, f"{planned}, and these have {size:,}: it promises nothing of them")
    return Promised(plan, f"plan: {plan.words}", functools.partial(learnt, session.over, plan))
