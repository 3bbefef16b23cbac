"""Where an error was raised, in lines that a person has written."""

import importlib.util
import json

import pytest

from tnt_notebook.error_text import source_line
from tnt_notebook.errors import ModelError

OWN = """import json
def load(text):
    return json.loads(text)
def within(library, text):
    return library(lambda: load(text))
"""


@pytest.fixture
def own(tmp_path):
    """A module of a person's."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    spec = importlib.util.spec_from_file_location("own", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def raised_by(call) -> BaseException:
    with pytest.raises(Exception) as raised:
        call()
    # What called it is this file, which is nobody's cell.
    return raised.value.with_traceback(raised.value.__traceback__.tb_next)


def test_the_innermost_line_of_the_persons_own_is_named(own):
    assert issubclass(json.JSONDecodeError, ValueError)
    error = raised_by(lambda: own.load("{"))
    assert source_line(error) == "line 3 of load in own.py: return json.loads(text)"
    assert source_line(ModelError("of ours")) == ""


def test_of_an_error_that_a_library_made_of_another_one_it_is_where_that_was_raised(own):
    def library(call):
        try:
            call()
        except ValueError as error:
            raise RuntimeError("of a library") from error

    code = library.__code__.replace(co_filename="/usr/lib/python3.11/library.py")
    error = raised_by(lambda: own.within(type(library)(code, {}), "{"))
    assert isinstance(error, RuntimeError)
    assert source_line(error) == "line 3 of load in own.py: return json.loads(text)"


def test_calls_that_only_the_text_of_an_error_holds_count(own):
    frames = (
        f'  File "{own.__file__}", line 3, in load\n  File "/usr/lib/python3.11/a.py", line 1, in f'
    )
    error = ValueError(f"in user code:\n\n{frames}\n\nValueError: bad")
    assert source_line(error) == "line 3 of load in own.py: return json.loads(text)"


def test_an_error_in_the_syntax_is_in_its_line():
    error = raised_by(lambda: compile("a = 1\ndef f(:\n", "<cell>", "exec"))
    assert source_line(error) == "line 2 of the cell: def f(:"
