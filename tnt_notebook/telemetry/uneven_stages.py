"""A stage of a pipeline with too much work: which layer it should give to which rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tnt_notebook.telemetry.step_trace import ACTIONS, StepTrace, by_rank, replicas


def with_less(slow: int, work: Sequence[float], step: StepTrace | None) -> str:
    """What to do so that a rank of a pipeline has less work, as the end of a sentence.

    Args:
        work: of all ranks, in seconds.
        step: a step of the run; None where none is known box by box.
    """
    move = _move(slow, work, step) if step else None
    if step is None or move is None:
        return "give its stage fewer layers."
    stage, to_stage, to_rank = move
    first, last = step["layers"][stage]
    if first == last:
        return f"its stage is one layer, {first}, which cannot be cut: train with fewer stages."
    later = to_stage > stage
    layer, end = (last, "last") if later else (first, "first")
    if step.get("cut_by") == "cut_at":
        begins = f"with {layer}" if later else f"behind {layer}"
        whose = f"rank {to_rank}'s" if later else "its"
        return f"in cut_at, let {whose} stage begin {begins}."
    if step.get("cut_by") == "SplitLayer":
        return f"put the SplitLayer {'before' if later else 'behind'} {layer}."
    # Measured times have made stages alike: it may as well be the machine.
    return (
        f"move {layer}, the {end} layer of its stage, to rank {to_rank}; or is its machine slower, "
        "or busy with something else?"
    )


def _move(slow: int, work: Sequence[float], step: StepTrace) -> tuple[int, int, int] | None:
    """Which stage of a rank should give a layer to which stage of which rank: to the neighbour
    with least work. None where the step does not tell."""
    pipeline = next((ranks for ranks in replicas(step) if slow in ranks), ())
    took: dict[tuple[int, int], float] = defaultdict(float)  # by stage and rank
    for rank, own in by_rank(step).items():
        for box in own:
            if rank in pipeline and box.kind in ACTIONS:
                took[box.stage, rank] += box.end - box.begin
    own_stages = [stage for stage, rank in took if rank == slow]
    if not own_stages or len(step.get("layers", [])) <= max(stage for stage, _ in took):
        return None
    stage = max(own_stages, key=lambda stage: took[stage, slow])
    beside = [(work[rank], s, rank) for s, rank in took if abs(s - stage) == 1 and rank != slow]
    return (stage, *min(beside)[1:]) if beside else None
