"""``--plan`` of fits: ``auto``, a variable of the notebook, or a file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from tnt_notebook.dashboard.reports.plans import Plans
from tnt_notebook.errors import PlanError
from tnt_notebook.magics.option_tables import given
from tnt_notebook.plan import saved_plans
from tnt_notebook.plan.fit_options import AUTO, TYPED
from tnt_notebook.plan.options import OPTIONS
from tnt_notebook.plan.prediction import PipelinePlan
from tnt_notebook.plan.promise import SET_BY_PLANS


def planned(arguments: Namespace, variables: Mapping[str, Any]) -> str | dict[str, Any]:
    """What ``--plan`` says, as :meth:`tnt_notebook.plan.fit_options.FitOptions.of` takes it.

    Args:
        variables: of the notebook.

    Raises:
        UsageError: it says nothing of this kind, or other options are typed that a plan sets.
    """
    text = arguments.plan
    flags = {**OPTIONS, **{name: TYPED[name] for name in SET_BY_PLANS if name in TYPED}}
    taken = set(given(flags, arguments)) - ({"memory_limit"} if text == AUTO else set())
    if taken:
        typed = ", ".join(flag for name, (flag, _) in flags.items() if name in taken)
        raise UsageError(f"--plan: not with {typed}, which the plan sets")
    if text == AUTO:
        return AUTO
    found = variables.get(text)
    if isinstance(found, Plans):
        if not found:
            raise UsageError(f"--plan {text}: there is no plan in it")
        return asdict(found.promise)
    if isinstance(found, PipelinePlan):
        raise UsageError(
            f"--plan {text}: one plan alone does not know its options; take a slice of plans, as "
            f"in {text} = plan[1:2]"
        )
    path = Path(text).expanduser()
    if not path.is_file():
        what = "is not a plan" if found is not None else "is no variable that holds a plan"
        raise UsageError(
            f"--plan {text}: it {what}, and no file is called so; write auto, a variable that "
            "%tnt_plan has set, or a file that plan.save(...) has written"
        )
    try:
        return asdict(saved_plans.promised(path))
    except PlanError as error:
        raise UsageError(f"--plan: {error}") from None
