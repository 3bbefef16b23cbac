"""Plans in a file of JSON, by which fits elsewhere run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tnt_notebook import files
from tnt_notebook.errors import MeshError, PlanError, ScheduleError
from tnt_notebook.plan.families import FAMILIES
from tnt_notebook.plan.options import READ
from tnt_notebook.plan.prediction import PipelinePlan, as_json, from_json
from tnt_notebook.plan.promise import SET_BY_PLANS, Promise

#: Of the format. A file has it under :data:`_KIND`.
VERSION = 6
_KIND = "tnt_notebook_plans"

#: A plan, and the options of fits by it.
Saved = tuple[PipelinePlan, dict[str, Any]]


def write(plans: Sequence[Saved], path: Path, force: bool) -> Path:
    """Writes plans, the best first.

    Raises:
        FileExistsError: the file is there, and may not be replaced.
    """
    found = [{"options": options, "plan": as_json(plan)} for plan, options in plans]
    text = json.dumps({_KIND: VERSION, "plans": found}, separators=(",", ":"), allow_nan=False)
    return files.write_new(path, text, force)


def read(path: Path) -> list[Saved]:
    """The plans of a file, the best first; at least one.

    Raises:
        PlanError: there is no such file, or it does not hold plans that this version can read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise PlanError(_damaged(path, error)) from None
    if not isinstance(data, dict) or _KIND not in data:
        raise PlanError(_damaged(path, "it is something else"))
    if data[_KIND] != VERSION:
        raise PlanError(
            f"{path} has version {data[_KIND]!r} of saved plans, and this tnt_notebook reads "
            f"version {VERSION}: plan again, and save that."
        )
    try:
        plans = [(from_json(one["plan"]), _checked(one)) for one in data["plans"]]
    except (
        LookupError, TypeError, ValueError, AttributeError, OverflowError, ArithmeticError,
        MeshError, ScheduleError,
    ) as error:  # fmt: skip
        raise PlanError(_damaged(path, error)) from None
    if not plans:
        raise PlanError(_damaged(path, "it holds no plan"))
    return plans


def promised(path: Path) -> Promise:
    """What the best plan of a file promises. Raises PlanError as :func:`read`."""
    return Promise.of(*read(path)[0])


def _checked(one: dict[str, Any]) -> dict[str, Any]:
    """The options of a plan, which fits can have."""
    options = files.typed(dict, one["options"])
    if unknown := set(options) - {*SET_BY_PLANS, "exchange"}:
        raise ValueError(f"there is no option {min(unknown)!r}")
    if "pipeline" in options and options["pipeline"].get("schedule", "1f1b") not in FAMILIES:
        raise ValueError(f"there is no schedule {options['pipeline']['schedule']!r}")
    for name, read in READ.items():
        if name in options:
            read(options[name])
    files.typed(Promise, asdict(Promise.of(from_json(one["plan"]), options)))
    return options


def _damaged(path: Path, why: object) -> str:
    return f"{path} holds no plans, or is damaged ({why}). plan.save(...) writes such a file."
