"""``plan="auto"``: the first ``fit`` of a model looks for the best way to train it on these ranks,
which that and later calls of the model take."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook import control_group
from tnt_notebook.comm import World
from tnt_notebook.errors import MemoryLimitError, ModelError
from tnt_notebook.keras import distribution as by_keras
from tnt_notebook.parallel.consistency import agreement, seeds
from tnt_notebook.parallel.data import sharded
from tnt_notebook.parallel.data.batch_size import batch_size_of
from tnt_notebook.parallel.exchange.named import name_of
from tnt_notebook.parallel.layer_graph.profile import Report
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layers.link import measured_link
from tnt_notebook.parallel.pipeline.predict import Planner
from tnt_notebook.parallel.training.overheads import Call, overheads_of
from tnt_notebook.parallel.training.placement import check
from tnt_notebook.parallel.training.prepare import build_layers
from tnt_notebook.parallel.training.session import Session
from tnt_notebook.plan import measurements
from tnt_notebook.plan.best import Way
from tnt_notebook.plan.fit_options import AUTO
from tnt_notebook.plan.hints import memory_of
from tnt_notebook.plan.network import ASSUMED, Link
from tnt_notebook.plan.outcome import record
from tnt_notebook.plan.overheads import Overheads
from tnt_notebook.plan.promise import Promise, options_of
from tnt_notebook.plan.traffic import is_planned
from tnt_notebook.sizes import size
from tnt_notebook.telemetry import activities

#: Other ranks hear so often that rank 0 still measures: their wait has a bound, which this is far
#: below.
_TELL_S = 5.0
#: By which they know it.
_GOES_ON = "goes_on"
#: It is worth a line that measuring took longer.
_WORTH_A_LINE_S = 2.0


def session_of(
    session: Session, model: keras.Model, method: str, arguments: Mapping[str, Any], call: Call
) -> Session:
    """The session in which a call of a model runs: one of its own where its plan was looked for,
    which this does at its first fit. Collective then.

    Args:
        arguments: of the call.
        call: see :mod:`.overheads`.

    Raises:
        MemoryLimitError: no way to train it keeps to the limit that was given.
    """
    if session.options.plan != AUTO:
        return session
    if method == "fit" and model not in session.planned and model.compiled:
        session.planned[model] = _planned(session, model, arguments, call)
    own = session.planned.get(model, session)
    if own is not session:
        own.renew()
    return own


def _planned(
    session: Session, model: keras.Model, arguments: Mapping[str, Any], call: Call
) -> Session:
    """A session with the plan that was found; the same one where there is none."""
    over, options = session.over, session.options
    given = session.fit_as.batch_size(arguments["x"], arguments["batch_size"])
    batch_size = batch_size_of(arguments["x"], given)
    agreement.agree(over, {"call": "fit", "batch_size": batch_size})
    try:
        promise = _promise(session, model, arguments, batch_size, call)
    except ModelError as error:
        if isinstance(error, MemoryLimitError) and options.memory_limit is not None:
            raise
        if over.rank == 0:
            print(f"plan: none, so ranks train whole copies of the model. {error}", flush=True)
        return session
    if over.rank == 0:
        print(f"plan: {promise.words}", flush=True)
        if said := record(measurements.fits(promise.ranks_key)):
            print(said, flush=True)
    session.forget(model)
    if "exchange" in promise.options:  # which is the one that was given, if one was
        options = replace(options, exchange=None, bucket_mb=None)
    return Session(over, replace(options, plan=promise, memory_limit=None))


def _promise(
    session: Session,
    model: keras.Model,
    arguments: Mapping[str, Any],
    batch_size: int | None,
    call: Call,
) -> Promise:
    """What rank 0 has found. Raises ModelError on all ranks where nothing can be planned."""
    over, options = session.over, session.options
    if batch_size is None:
        raise ModelError(
            "The batch size of this input is not known before it is read: give a tf.data.Dataset "
            "that ends in batch(...), or arrays."
        )
    if by_keras.distribution_of(model) is not None:
        raise ModelError("A distribution of Keras is set, which says how the model is divided.")
    check(session.exchange, model, options.batch_norm, over.size, in_stages=True)
    x, y, weights = (arguments[name] for name in ("x", "y", "sample_weight"))
    build_layers(model, lambda: sharded(None, x, y, weights).element)
    link = measured_link(over)
    rows = -(-batch_size // over.size)
    overheads = overheads_of(over, model, surveyed(model), rows, call)
    search = functools.partial(_search, session, model, batch_size, link, overheads)
    found = _of_rank_0(over, search)
    if "refused" in found:
        raise (MemoryLimitError if found["too_large"] else ModelError)(found["refused"])
    return Promise(**found)


def _search(
    session: Session,
    model: keras.Model,
    batch_size: int,
    link: Link | None,
    overheads: Overheads,
    tell: Report,
) -> dict[str, Any]:
    """The promise of the best plan as plain data; or why there is none."""
    over, most = session.over, session.options.memory_limit
    limit = control_group.share_of(over.rank, over.hosts) if most is None else memory_of(most)
    try:
        planner = Planner(
            model, batch_size, over.size, tell, overheads=overheads, exchange=_exchange(session)
        )
        found, plans = planner.best(over.size, link or ASSUMED, limit)
    except ModelError as error:
        return {"refused": str(error), "too_large": False}
    except (ValueError, tf.errors.OpError) as error:
        return {"refused": f"Its layers could not be timed: {error}", "too_large": False}
    if not plans and found.too_large[0]:
        needs = size(found.too_large[1])
        why = f"No way fits into {size(limit)} a rank: even the smallest needs {needs}."
        return {"refused": why, "too_large": True}
    if not plans:
        return {"refused": max(found.refused, key=found.refused.__getitem__), "too_large": False}
    given_limit = None if most is None else int(limit)
    return asdict(Promise.of(plans[0], options_of(Way.of(plans[0]), given_limit)))


def _exchange(session: Session) -> str | None:
    """The exchange to plan with; None: whichever is best. Of one that plans do not know they say
    what an allreduce takes."""
    if session.options.exchange is None and session.options.bucket_mb is None:
        return None
    name = name_of(session.exchange)
    if is_planned(name):
        return name
    print(f"plan: as if ranks exchanged by allreduce, since plans do not know {name}", flush=True)
    return ""


def _of_rank_0(over: World, search: Callable[[Report], dict[str, Any]]) -> dict[str, Any]:
    """What a search of rank 0 finds, on all ranks. Collective."""
    if over.rank != 0:
        with activities.during("wait"):
            while found := agreement.from_rank_0(over, None):
                if _GOES_ON not in found:
                    return found
    begun = told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told > _TELL_S:
            agreement.from_rank_0(over, {_GOES_ON: [done, total]})
            told = time.monotonic()

    with seeds.untouched():  # other ranks draw nothing meanwhile
        found = search(tell)
    if (took := time.monotonic() - begun) > _WORTH_A_LINE_S:
        print(f"measured the model's layers in {took:.0f} s, to plan how it is trained", flush=True)
    return agreement.from_rank_0(over, found)
