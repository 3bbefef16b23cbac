"""What ``%tnt_plan`` asks of ranks, of any plan: rank 0 measures, and tells how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tnt_notebook import errors
from tnt_notebook.dashboard.figures.wording import plural
from tnt_notebook.magics.progress import StatusLine
from tnt_notebook.protocol import Call, Published

if TYPE_CHECKING:
    from tnt_notebook.cluster import Cluster


def asked(cluster: Cluster, status: StatusLine, call: Call, *arguments: Any) -> dict[str, Any]:
    """What rank 0 answers, and on the status line what it measures.

    Raises:
        TntError: there is no plan, of the class and with the message that rank 0 gives.
        RankError: it failed there.
    """
    begun = time.monotonic()
    answer = cluster.ask(call, *arguments, on_data=shown_on(status), report=status.update)
    _raise_refusal(answer, status)
    if answer["measured"]:
        took = plural(max(1, round(time.monotonic() - begun)), "second")
        status.end(f"{plural(answer['measured'], 'layer')} measured in {took}")
    else:
        status.withdraw()
    return answer


def shown_on(status: StatusLine) -> Callable[[dict[str, Any]], None]:
    """What shows what ranks publish while they measure."""

    def show(data: dict[str, Any]) -> None:
        if Published.LOADED in data:
            status.update(data[Published.LOADED]["what"])
        if Published.PLANNED in data:
            progress = data[Published.PLANNED]
            status.update(f"measured {progress['done']} of {plural(progress['total'], 'layer')}")

    return show


def measured_link(cluster: Cluster, status: StatusLine) -> dict[str, float] | None:
    """What ranks exchange with, measured among all unless it is known; None of one rank."""
    links = cluster.call(Call.MEASURE_LINK, report=status.update)
    return links[min(links)] or None


def measured_overheads(
    cluster: Cluster, status: StatusLine, name: str, batch_size: int
) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """What a step takes beside its layers, measured by all ranks unless it is known; and of fits by
    plan on them so far, seconds of a step, promised and measured.

    Raises:
        ModelError: there is no such model, or it cannot be planned.
    """
    status.update("measuring what ranks take for a step in which nothing is done")
    answers = cluster.call(
        Call.MEASURE_OVERHEADS, name, batch_size, on_data=shown_on(status), report=status.update
    )
    answer = answers[min(answers)]
    _raise_refusal(answer, status)
    return answer["overheads"], answer["fits"]


def _raise_refusal(answer: dict[str, Any], status: StatusLine) -> None:
    """Raises what a rank has said that is in the way of a plan, if it has."""
    if "refused" in answer:
        status.withdraw()  # of what it says nothing is done any more
        raise getattr(errors, answer["kind"])(answer["refused"])
