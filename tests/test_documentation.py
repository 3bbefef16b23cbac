"""What a reader copies from the documentation is there: magics, options, targets, files.

`make docs` checks the site itself: its links, that each page is in a section, and that each public
name has a docstring.
"""

import importlib
import json
import pkgutil
import re
from pathlib import Path

from IPython.core.error import UsageError

from tnt_notebook import magics
from tnt_notebook.magics.typed import words_of

CHECKOUT = Path(__file__).parents[1]
README, CONTRIBUTING = CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md"
PAGES = {page: page.read_text() for page in [README, CONTRIBUTING, *CHECKOUT.glob("docs/**/*.md")]}


def parsers():
    """Of each magic, by its name."""
    modules = [
        importlib.import_module(f"{magics.__name__}.{module.name}")
        for module in pkgutil.iter_modules(magics.__path__)
    ]
    things = {name: thing for module in modules for name, thing in vars(module).items()}
    return {name: thing.parser for name, thing in things.items() if hasattr(thing, "parser")}


def test_magics_take_what_is_shown():
    parser_of, shown = parsers(), 0
    for page, text in PAGES.items():
        lines = re.findall(r"^ *%%?(tnt\w*) (.*)$", text, re.MULTILINE)
        lines += re.findall(r"`%%?(tnt\w*) ([^`]*)`", text)
        for name, line in lines:
            if "..." not in line:
                assert taken(parser_of[name], line), f"{page}: {name} {line}"
                shown += 1
    assert shown > 50


def test_tutorials_keep_what_their_cells_show():
    # Of a cell that has not run nothing is compared.
    for path in CHECKOUT.glob("notebooks/*.ipynb"):
        cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
        assert cells and all(c["execution_count"] for c in cells), f"{path}: make tutorials"


def taken(parser, line):
    """Whether a magic takes a line, in which capitals stand for values; brackets do not count."""
    words = words_of(re.sub(r"[\[\]]", "", line.split(" #")[0]))
    words = ["1" if re.fullmatch(r"[A-Z]+", word) else word for word in words]
    last = parser._option_string_actions.get(words[-1])
    if last is not None and last.nargs is None:  # prose that speaks of an option
        words.append("1" if last.choices is None else last.choices[0])
    try:
        parser.parse_args(words)
    except UsageError:
        return False
    return True


def test_make_has_the_targets_that_are_shown():
    there = re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    for page, text in PAGES.items():
        shown = re.findall(r"(?:^ {4}|^|`)make ([a-z-]+)(?=[\s`;])", text, re.MULTILINE)
        assert set(shown) - {"install"} <= set(there), page  # which is GPI-2's


def test_links_lead_to_files():
    for page in README, CONTRIBUTING:
        for link in re.findall(r"\]\(([^)#:]+)\)", PAGES[page]):
            assert (CHECKOUT / link).is_file(), f"{page}: {link}"


def test_the_readme_is_short():
    assert README.stat().st_size <= 7000


#: What people type into the site's search, and the page that it should lead to.
SEARCHED = {
    "out of memory": "errors.md",
    "oom": "errors.md",
    "multi-gpu": "centres/clusters.md",
    "hyperparameter search": "guide/sweeps.md",
    "learning rate search": "guide/sweeps.md",
    "early stopping": "guide/train.md",
    "distributed training": "index.md",
    "data parallel": "ideas.md",
    "model parallel": "ideas.md",
    "tensor parallel": "guide/mesh.md",
    "horovod": "coming/horovod.md",
    "multiworkermirroredstrategy": "coming/multiworker.md",
    "distributeddataparallel": "coming/ddp.md",
    "accelerate": "coming/accelerate.md",
    "keras.distribution": "coming/keras-distribution.md",
}
#: Found by their text alone; of the others, a heading has the words, which come first.
NO_HEADING = {"learning rate search", "tensor parallel"}


def test_search_finds_what_people_type():
    for words, name in SEARCHED.items():
        text = PAGES[CHECKOUT / "docs" / name].lower()
        headings = "\n".join(re.findall(r"^#+ .*$", text, re.MULTILINE))
        assert words in " ".join((text if words in NO_HEADING else headings).split()), words
