"""``%tnt_plan`` alone: has rank 0 measure a model, and shows the best ways to train it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tnt_notebook.dashboard.figures.wording import plural, rate, short_time, size, three_digits
from tnt_notebook.dashboard.reports import plan_ranks
from tnt_notebook.dashboard.reports.plan import figure_bundle
from tnt_notebook.errors import MemoryLimitError, ModelError, NetworkError
from tnt_notebook.magics.planning import asked, measured_link, measured_overheads
from tnt_notebook.magics.progress import StatusLine, show
from tnt_notebook.magics.table import Bold, Table, below, bundle
from tnt_notebook.plan.best import MOST_DIVIDED, Way
from tnt_notebook.plan.buckets import CAP_MB
from tnt_notebook.plan.exchange import SIZES_MB
from tnt_notebook.plan.network import Level, Network, as_json
from tnt_notebook.plan.outcome import record, usual_error
from tnt_notebook.plan.prediction import PipelinePlan, from_json
from tnt_notebook.plan.quantities import rate_text
from tnt_notebook.plan.terms import limited_by
from tnt_notebook.protocol import Call

if TYPE_CHECKING:
    from tnt_notebook.cluster import Cluster

_COPIES = "whole copies"


def run(
    cluster: Cluster,
    name: str,
    ranks: int,
    batch_size: int,
    memory_limit: int | None,
    network: Network | None = None,
    exchange: str | None = None,
) -> tuple[list[PipelinePlan], list[dict[str, Any]]]:
    """Looks for the best ways, and shows them.

    Args:
        name: of the model on the ranks.
        ranks: how many, which need not be there.
        batch_size: samples of a batch.
        memory_limit: bytes that a rank may need; None: its share of its host's.
        network: what ranks exchange with; None: what was measured among those that are there.
        exchange: of replicas, as it is typed; None: the best one.

    Returns:
        What to expect of each, the fastest first; and of the fastest on fewer and more ranks, see
        :mod:`tnt_notebook.plan.by_ranks`.

    Raises:
        ModelError: there is none, or none that fits; the message says why.
        NetworkError: the network has fewer ranks.
        RankError: it failed on a rank.
    """
    if network is not None and (network.most_ranks or ranks) < ranks:
        raise NetworkError(
            f"{network.about} has at most {plural(network.most_ranks or 0, 'rank')}, not {ranks}. "
            "Leave ranks out in the last level of its file if it has any number of them."
        )
    status = StatusLine()
    # Ranks that are there have as many samples as those that are planned for.
    like_it = -(-batch_size * cluster.ranks // ranks)
    overheads, fits = measured_overheads(cluster, status, name, like_it)
    link = measured_link(cluster, status) if network is None else None
    if network is not None:  # fits on these ranks do not try such plans
        overheads |= {"ranks_key": "", "speeds": ()}
        fits = []
    answer = asked(
        cluster, status, Call.PLAN_BEST, name, ranks, batch_size, link, overheads, memory_limit,
        None if network is None else as_json(network), exchange,
    )  # fmt: skip
    plans = [from_json(plan) for plan in answer["plans"]]
    if not plans:
        (too_large, needs), reasons = answer["too_large"], answer["refused_ways"]
        if too_large:
            raise MemoryLimitError(
                f"No way to train it on {plural(ranks, 'rank')} fits into {size(answer['limit'])} "
                f"a rank: the one that needs least needs {size(needs)}. More ranks, smaller "
                "batches, or layers divided on a mesh (%tnt_plan --mesh model=2) need less."
            )
        raise ModelError(
            f"It cannot be trained on {plural(ranks, 'rank')}: {max(reasons, key=reasons.get)}"
        )
    by_ranks = answer["by_ranks"]
    curve = [plan_ranks.figure_bundle(by_ranks, ranks)] if len(by_ranks) > 1 else []
    sure = f"{record(fits)} {alike(plans, fits)}".lstrip()
    told = below(best_bundle(plans, ranks, answer, network, exchange), sure)
    show(told, *curve, figure_bundle(plans[0]))
    return plans, by_ranks


def alike(plans: Sequence[PipelinePlan], fits: Sequence[tuple[float, float]]) -> str:
    """How many of them may be as fast as the first, in words.

    Args:
        fits: by plan on the ranks that are there, as of
            :func:`~tnt_notebook.plan.outcome.record`.
    """
    error = usual_error(fits)
    near = sum(plan.step_s <= (1 + error) * plans[0].step_s for plan in plans)
    told = [f"How sure: half of all plans are off by more than {error:.0%}"]
    if near > 1:
        told.append(f"the first {near} may be equally fast")
    elif len(plans) > 1:
        told.append("the others are slower by more than that")
    return "; ".join(told) + "."


def best_bundle(
    plans: Sequence[PipelinePlan],
    ranks: int,
    answer: dict[str, Any],
    network: Network | None = None,
    exchange: str | None = None,
) -> dict[str, str]:
    """The best in a sentence, a table of all that were found, and what else there is.

    Args:
        plans: at least one, the fastest first.
        answer: of the rank that has looked for them.
        network: that they were looked for on, if not among the ranks that are there.
        exchange: that they were asked to have.
    """
    head = ("%%tnt_fit", "replicas", "step", "samples/s", "speedup", "idle", "memory",
            "limited by")  # fmt: skip
    rows = [
        (
            Way.of(plan).typed or _COPIES,
            f"{plan.replicas:,}",
            short_time(plan.step_s),
            rate(plan.samples_per_s),
            three_digits(plan.speedup),
            f"{plan.bubble:.0%}",
            size(max(plan.rank_bytes)),
            limited_by(plan) or "-",
        )
        for plan in plans
    ]
    there_are, (too_large, _) = answer["there_are"], answer["too_large"]
    refused = too_large + sum(answer["refused_ways"].values())
    memory = f"{too_large} of them need more than {size(answer['limit'])} a rank, "
    told = [
        f"{plural(there_are, 'way')} to train it on {plural(ranks, 'rank')}: replicas of "
        "pipelines with each schedule, 1, 2, 4, ... micro-batches, with and without "
        f"recomputation, {_exchanges(exchange)}; "
        f"{_meshes(answer['meshes'], ranks)}"
        f"{memory if too_large else ''}{there_are - refused - len(plans)} are slower. "
        "Meshes with several such axes were not tried: %tnt_plan --mesh plans one."
    ]
    told += [f"{count} not possible: {why}" for why, count in answer["refused_ways"].items()]
    table = Table(head, rows, left={"%%tnt_fit", "limited by"}, best={(0, "%%tnt_fit")})
    over = [] if network is None else [network_line(network)]
    headline = _headline(plans[0], answer["by_ranks"])
    return bundle(Bold(headline), *over, table, "\n".join(told))


def _exchanges(given: str | None) -> str:
    """Which exchanges were tried."""
    if given is not None:
        return f"with the exchange {given}"
    *some, last = sorted({*SIZES_MB, CAP_MB})
    return (
        "with the optimizer's state on each or shared out among them (sharded), and buckets of "
        f"gradients of {', '.join(map(str, some))} or {last} MiB"
    )


def _meshes(meshes: Sequence[str], ranks: int) -> str:
    """Which meshes were tried; empty: no layer could be divided."""
    if not meshes:
        return ""
    what = "whole copies and 1f1b" if ranks <= MOST_DIVIDED else "whole copies"
    return f"and {what} with layers divided along {', '.join(meshes)}; "


def network_line(network: Network) -> str:
    """A network in a line, level by level."""
    return f"Network: {network.about}. {'; '.join(map(_level_text, network.levels))}."


def _level_text(level: Level) -> str:
    of = "" if level.ranks is None else f" of {plural(level.ranks, 'rank')}"
    port = level.port_bytes_per_s
    shared = "" if port is None else f" and {rate_text(port)} a port"
    rate = rate_text(level.link.bytes_per_s)
    return f"{level.name}{of}: {rate} a rank{shared}, {short_time(level.link.latency_s)}"


def _headline(plan: PipelinePlan, by_ranks: Sequence[dict[str, Any]]) -> str:
    typed, shape = Way.of(plan).typed or "without options", plan_ranks.shape(plan)
    growth = plan_ranks.growth(by_ranks, plan.batch_size)
    return (
        f"The fastest is %%tnt_fit {typed}, {shape}: expect {rate(plan.samples_per_s)} samples/s, "
        f"{three_digits(plan.speedup)} times one rank. {growth}"
    ).rstrip()
