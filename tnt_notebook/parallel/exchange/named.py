"""The exchange that a person asks for: by its name and options, as an object, or as a function."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tnt_notebook.choices import EXCHANGES, split_exchange
from tnt_notebook.parallel.exchange import Exchange, ExchangeFunction, ExchangeStep
from tnt_notebook.parallel.exchange.allreduce import Allreduce
from tnt_notebook.parallel.exchange.elastic import Elastic
from tnt_notebook.parallel.exchange.gossip import Gossip
from tnt_notebook.parallel.exchange.late import Late
from tnt_notebook.parallel.exchange.local import Local
from tnt_notebook.parallel.exchange.onebit import OneBit
from tnt_notebook.parallel.exchange.powersgd import PowerSgd
from tnt_notebook.parallel.exchange.qsgd import Qsgd
from tnt_notebook.parallel.exchange.server import Server
from tnt_notebook.parallel.exchange.sharded import Sharded
from tnt_notebook.parallel.exchange.topk import TopK
from tnt_notebook.words import meant

#: What a person may give.
Given = Exchange | type[Exchange] | ExchangeFunction | str

#: By the names of :data:`~tnt_notebook.choices.EXCHANGES`.
CLASSES: dict[str, type[Exchange]] = {
    "allreduce": Allreduce, "sharded": Sharded, "late": Late, "qsgd": Qsgd, "onebit": OneBit,
    "topk": TopK, "powersgd": PowerSgd,
    "local": Local, "elastic": Elastic, "gossip": Gossip, "server": Server,
}  # fmt: skip


@dataclass(frozen=True)
class OfFunction(Exchange):
    """An exchange of gradients without a state."""

    gives_up: ClassVar[str] = "what its function gives up"

    function: ExchangeFunction

    def gradients(
        self, step: ExchangeStep, gradients: Sequence[Any], variables: Sequence[Any]
    ) -> list[Any]:
        return self.function(gradients, variables, step.scale, step.over)


def exchange_of(
    given: Given | None,
    bucket_mb: float | None = None,
    own: Callable[[str], Any] = lambda name: None,
) -> Exchange:
    """The exchange that is asked for: by default an allreduce.

    Args:
        given: ``"late:steps=1"``, an :class:`Exchange`, a subclass of it, or a function.
        bucket_mb: of the allreduce by default.
        own: gives what a person has by a name that is none of ours, or None.

    Raises:
        ValueError: there is no such exchange, or it has no such option.
    """
    if given is None:
        return Allreduce(bucket_mb=bucket_mb)
    return _of_text(given, own) if isinstance(given, str) else _of_object(given)


def name_of(exchange: Exchange) -> str:
    """As a person would ask for it: ``late:steps=2``."""
    if isinstance(exchange, OfFunction):
        return getattr(exchange.function, "__name__", "a function")
    names = {kind: name for name, kind in CLASSES.items()}
    name = names.get(type(exchange), type(exchange).__name__)
    options = {f.name: getattr(exchange, f.name) for f in dataclasses.fields(exchange)}
    defaults = {f.name: f.default for f in dataclasses.fields(exchange)}
    said = [f"{key}={value}" for key, value in options.items() if value != defaults[key]]
    return f"{name}:{','.join(said)}" if said else name


def described(exchange: Exchange) -> str:
    """What the view says of it, and of the promise that it gives up; nothing of the default."""
    wire = getattr(exchange, "wire", None)
    lost = [exchange.gives_up, f"the bits that {wire} has not" if wire else ""]
    if isinstance(exchange, Allreduce) and not wire:
        return ""
    given_up = "; and ".join(filter(None, lost))
    return f"exchange {name_of(exchange)}" + (f", which gives up {given_up}" if given_up else "")


def _of_text(text: str, own: Callable[[str], Any]) -> Exchange:
    name, said = split_exchange(text)
    kind: Any = CLASSES.get(name) or own(name)
    if kind is None:
        near = meant(name, {known: known for known in EXCHANGES}, 0.75)
        raise ValueError(
            f"There is no exchange {name!r}{near or '.'} It is one of {', '.join(EXCHANGES)}, or "
            "a variable of the cells on the ranks."
        )
    if not said:
        return _of_object(kind)
    if not (isinstance(kind, type) and issubclass(kind, Exchange)):
        raise ValueError(f"{text!r}: {name} takes no options: it is not a subclass of Exchange.")
    types = typing.get_type_hints(kind)
    fields = {f.name: types[f.name] for f in dataclasses.fields(kind) if f.init}
    options = {}
    for key, value in said.items():
        option = key if value is None else f"{key}={value}"
        if key not in fields or value is None:
            takes = ", ".join(f"{field}=..." for field in fields) or "none"
            raise ValueError(f"The exchange {name} has no option {option!r}. It takes {takes}.")
        options[key] = _typed(value, fields[key], f"{name}:{option}")
    return kind(**options)


def _typed(value: str, kind: Any, said: str) -> Any:
    """A value of a field, as it was typed."""
    kinds = [one for one in typing.get_args(kind) or (kind,) if one is not type(None)]
    for one in kinds:
        if one is bool and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if one in (int, float, str):
            try:
                return one(value)
            except ValueError:
                continue
    names = " or ".join(getattr(one, "__name__", str(one)) for one in kinds)
    raise ValueError(f"{said}: {value!r} is no {names}.")


def _of_object(given: Any) -> Exchange:
    if isinstance(given, type) and issubclass(given, Exchange):
        return given()
    if isinstance(given, Exchange):
        return given
    if callable(given):
        return OfFunction(given)
    raise ValueError(
        f"An exchange is a name, an Exchange or a function, not a {type(given).__name__}."
    )
