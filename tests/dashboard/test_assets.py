"""The browser side is found, joined, and passes its own tests in Node."""

import json
from pathlib import Path

import pytest

from tests.support.node import in_node, node
from tnt_notebook.dashboard.card import assets
from tnt_notebook.dashboard.figures import wording
from tnt_notebook.telemetry.kinds import BOX_KINDS, Kind


def test_the_modules_pass_their_own_tests():
    tests = sorted(map(str, (assets.folder() / "test").glob("*.test.js")))
    assert tests
    node("--test", *tests)


@pytest.mark.parametrize("name", ["card.js", "sweep.js"])
def test_the_joined_module_loads_alone(tmp_path, name):
    alone = tmp_path / "card.mjs"
    alone.write_text(assets.module(name))
    script = (
        f"const card = await import('{alone.as_uri()}'); console.log(Object.keys(card.default))"
    )
    assert in_node(script).strip() == "[ 'initialize', 'render' ]"


def test_numbers_read_the_same_in_python_and_in_the_browser():
    numbers = [0.4321, 12.3456, -0.5, 0, 0.00123, 1.234e-7, 1.5e9, 54321.0, None]
    seconds = [0, 7.4, 59.6, 754, 3723, 183845]
    short = [0, 4.268e-6, 138.4e-6, 999.6e-6, 0.0025, 0.01234, 0.1456, 0.9996, 1.234, 1234.6]
    module = (assets.folder() / "format.js").as_uri()
    script = (
        f"import {{ clock, number, shortTime }} from '{module}';"
        f"const texts = [{json.dumps(numbers)}.map(number), {json.dumps(seconds)}.map(clock),"
        f"{json.dumps(short)}.map(shortTime)];"
        "console.log(JSON.stringify(texts));"
    )
    in_the_browser = json.loads(in_node(script))
    assert in_the_browser == [
        [*map(wording.number, numbers)],
        [*map(wording.clock, seconds)],
        [*map(wording.short_time, short)],
    ]


def test_the_browser_draws_the_kinds_of_boxes_that_python_knows():
    script = (
        f"const {{ KINDS }} = await import('{(assets.folder() / 'kinds.js').as_uri()}');"
        "console.log(JSON.stringify(KINDS));"
    )
    browser = json.loads(in_node(script))
    assert {letter: Kind(**row) for letter, row in browser.items()} == BOX_KINDS
    assert list(browser) == list(BOX_KINDS)


def test_each_module_is_joined_once_after_those_it_imports(tmp_path: Path):
    (tmp_path / "a.js").write_text(
        'import { b } from "./b.js";\nimport { c } from "./c.js";\nexport default b + c;\n'
    )
    (tmp_path / "b.js").write_text('import { c } from "./c.js";\nexport const b = c + 1;\n')
    (tmp_path / "c.js").write_text("export const c = 1;\n")
    lines = assets.module("a.js", tmp_path).split()
    assert " ".join(lines) == "const c = 1; const b = c + 1; export default b + c;"


def test_a_name_that_two_modules_define_is_an_error(tmp_path: Path):
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\nfunction scale() {}\n')
    (tmp_path / "b.js").write_text("export const b = 1;\nconst scale = 2;\n")
    with pytest.raises(ValueError, match="scale"):
        assets.module("a.js", tmp_path)
