"""What a person is told of an error: in paragraphs, in a line, and where it was raised."""

from __future__ import annotations

import linecache
import re
import traceback
from pathlib import Path
from types import TracebackType

#: Code that is no user's: installed, Python's, our own, or made by TensorFlow.
_LIBRARY = re.compile(
    r"/site-packages/|/lib/python\d|<frozen |<string>|__autograph_generated_file|"
    + re.escape(f"{Path(__file__).parent}/")
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

#: Lines in the text of an error that say nothing to who has not written TensorFlow.
_NOISE = re.compile(
    r"\s*(Graph execution error:|Detected at node .* defined at|<stack traces unavailable>|"
    r'File "[^"]*", line \d+, in |\[\[.*\]\]|Traceback \(most recent call last\):|in user code:)'
)
#: The begin of an error in the text of another one.
_INNER = re.compile(r"\s*\w*(Error|Exception|Interrupt): ")
#: The begin of an error of Keras that says where it was; what is wrong comes in a new paragraph.
_WHERE = r"Exception encountered when calling \S+\.$"
_MOST_TOLD, _MOST_IN_A_LINE = 4000, 1000  # characters
_MOST_READ = 1_000_000


def told(name: str, said: str) -> str:
    """What a person is told of an error: its class and what it says, in paragraphs. Without colours
    of a terminal, calls within TensorFlow and names of nodes; of a text that holds the whole
    traceback of another error only that one.

    Args:
        name: of its class.
        said: its text.
    """
    inner = False
    if len(said) > _MOST_READ:
        said = f"{said[: _MOST_READ // 2]} [...] {said[-_MOST_READ // 2 :]}"
    lines = [line.rstrip() for line in without_colours(said).splitlines()]
    if any(map(_NOISE.match, lines)):
        begins = [i for i, line in enumerate(lines) if _INNER.match(line)]
        inner, lines = bool(begins), lines[begins[-1] if begins else 0 :]
    kept = "\n".join(line for line in lines if not _NOISE.match(line))
    whole = re.sub(r"\n{3,}", "\n\n", kept).strip()
    if len(whole) > _MOST_TOLD:
        whole = f"{whole[: _MOST_TOLD // 2]} [...] {whole[-_MOST_TOLD // 2 :]}"
    return whole if inner else f"{name}: {whole}" if whole else name


def in_a_line(text: str) -> str:
    """The begin of what is told of an error, no longer than a thousand characters."""
    first, *rest = re.split(r"\n\s*\n", text)
    # Keras says first where it was, and then what is wrong.
    while rest and (first.endswith(":") or re.search(_WHERE, first)):
        first, *rest = [f"{first} {rest[0]}", *rest[1:]]
    line, *more = first.splitlines()
    cut = more or line[_MOST_IN_A_LINE:] or (rest and not rest[0].startswith("Arguments received"))
    return f"{line[:_MOST_IN_A_LINE]}{' ...' if cut else ''}"


def brief(error: BaseException) -> str:
    """An error in one line: its class and what it says."""
    return in_a_line(told(type(error).__name__, str(error)))


def source_line(error: BaseException) -> str:
    """The line of a cell, or of a file of the user's, in which an error was raised:
    ``line 9 of load in the cell: read(path)``. Empty where none is known.

    Where a library has raised it because of another error, that line of the other one.
    """
    if isinstance(error, SyntaxError):
        text = (error.text or "").strip()
        where = f"line {error.lineno} of {_file(error.filename or '')}"
        return f"{where}: {text}" if error.lineno and text else ""
    found = [*own_lines(error.__traceback__), *_lines_in(str(error))]
    inside = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if inside is not None and not _ends_in_own_code(error):
        return source_line(inside) or (found[-1] if found else "")
    return found[-1] if found else ""


def own_lines(calls: TracebackType | None) -> list[str]:
    """Lines of cells, and of files of the user's, in which an error was raised, outermost first."""
    frames = [(frame.f_code, number) for frame, number in traceback.walk_tb(calls)]
    lines = [_own_line(code.co_filename, number, code.co_name) for code, number in frames]
    return [line for line in lines if line]


def without_colours(text: str) -> str:
    """A text without what makes a terminal colour it."""
    return _COLOUR.sub("", text)


def _lines_in(said: str) -> list[str]:
    """The same of the calls that the text of an error holds, as of TensorFlow's."""
    calls = re.findall(r'File "([^"\n]+)", line (\d+), in (\S+)', said)
    lines = [_own_line(path, int(number), name) for path, number, name in calls]
    return [line for line in lines if line]


def _own_line(path: str, number: int, name: str) -> str:
    line = linecache.getline(path, number).strip()
    if not line or "get_ipython().run_" in line or _LIBRARY.search(path):
        return ""  # IPython's own way of calling a magic
    where = _file(path) if name == "<module>" else f"{name} in {_file(path)}"
    return f"line {number} of {where}: {line}"


def _file(path: str) -> str:
    return Path(path).name if Path(path).exists() else "the cell"


def _ends_in_own_code(error: BaseException) -> bool:
    last = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)][-1:]
    return bool(last) and not _LIBRARY.search(last[0])
