"""Networks in files, which people write: TOML, level by level, the innermost first.

::

    about = "nodes of 4 GPUs with NVLink, and InfiniBand HDR"

    [[level]]
    name = "node"
    ranks = 4               # of a group; the last level may leave it out: as many as there are
    latency = "3 us"        # of a message
    rate = "235 GB/s"       # that a rank sends, and receives at the same time

    [[level]]
    name = "fabric"
    latency = "5 us"
    rate = "25 GB/s"
    port = "100 GB/s"       # that the ranks of a node share; if left out, each has its own

Some come with the package, in ``fabrics``: a name finds them.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tnt_notebook.errors import NetworkError
from tnt_notebook.plan.network import Level, Link, Network
from tnt_notebook.plan.quantities import parsed_rate, parsed_seconds

_FABRICS = Path(__file__).with_name("fabrics")
_KEYS, _LEVEL_KEYS = ("about", "level"), ("name", "ranks", "latency", "rate", "port")


def names() -> list[str]:
    """Of the networks that come with the package."""
    return sorted(path.stem for path in _FABRICS.glob("*.toml"))


def network_of(name_or_path: str) -> Network:
    """The network of a file, or of one that comes with the package.

    Raises:
        NetworkError: there is none, or it cannot be read; the message says what to change.
    """
    if name_or_path in names():
        path = _FABRICS / f"{name_or_path}.toml"
    else:
        path = Path(name_or_path).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        close = difflib.get_close_matches(name_or_path, names(), 1)
        hint = f" Is it {close[0]}?" if close else ""
        raise NetworkError(
            f"There is no network, and no file, {name_or_path}.{hint} Write a file, or take one of "
            f"{', '.join(names())}."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise NetworkError(f"The network {name_or_path} cannot be read: {error}") from None
    return parsed(text, name_or_path)


def parsed(text: str, where: str) -> Network:
    """The network that the text of a file describes.

    Args:
        where: the file, for errors.

    Raises:
        NetworkError: the text is no such file.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NetworkError(f"{where} is not TOML: {error}") from None
    _only(table, _KEYS, where)
    rows = table.get("level")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise NetworkError(f"{where} has no levels: begin each with [[level]], the innermost first")
    levels: list[Level] = []
    for number, row in enumerate(rows, 1):
        at = f"{where}, level {number}"
        levels.append(_level(row, at, is_last=number == len(rows)))
        _check_nested(levels, at)
    about = table.get("about", where)
    if not isinstance(about, str):
        raise NetworkError(f"{where}: about is {about!r}, and should be a line of text")
    return Network(about, tuple(levels))


def _level(row: Mapping[str, Any], at: str, is_last: bool) -> Level:
    _only(row, _LEVEL_KEYS, at)
    for key in ("name", "latency", "rate", *([] if is_last else ["ranks"])):
        if key not in row:
            raise NetworkError(f"{at} has no {key}")
    if not isinstance(row["name"], str):
        raise NetworkError(f"{at}: name is {row['name']!r}, and should be a text")
    ranks = row.get("ranks")
    if ranks is not None and (type(ranks) is not int or ranks < 2):
        raise NetworkError(f"{at}: ranks is {ranks!r}, and should be a number of at least 2")
    link = Link(_number(row, "latency", parsed_seconds, at), _number(row, "rate", parsed_rate, at))
    port = _number(row, "port", parsed_rate, at) if "port" in row else None
    return Level(row["name"], ranks, link, port)


def _number(row: Mapping[str, Any], key: str, parse: Callable[[str], float], at: str) -> float:
    """Seconds, or bytes a second: as a text with a unit."""
    value = row[key]
    if not isinstance(value, str):
        raise NetworkError(f"{at}: {key} is {value!r}: write it in quotes, with its unit")
    try:
        number = parse(value)
    except ValueError as error:
        raise NetworkError(f"{at}: {key}: {error}") from None
    if not 0 < number < float("inf"):
        raise NetworkError(f"{at}: {key} is {value!r}, and should be more than 0, and finite")
    return number


def _check_nested(levels: list[Level], at: str) -> None:
    """The last level, beside those before it."""
    level = levels[-1]
    if len(levels) == 1:
        if level.port_bytes_per_s is not None:
            raise NetworkError(f"{at}: port goes with a level that has one within it")
        return
    within = levels[-2].ranks or 1
    if level.ranks is not None and (level.ranks <= within or level.ranks % within):
        raise NetworkError(
            f"{at}: ranks is {level.ranks}, and should be a multiple of the {within} of the level "
            "before it: levels are nested, the innermost first"
        )


def _only(table: Mapping[str, Any], known: tuple[str, ...], at: str) -> None:
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = f"; is it {close[0]}?" if close else f"; there are {', '.join(known)}"
            raise NetworkError(f"{at}: unknown key {key!r}{hint}")
