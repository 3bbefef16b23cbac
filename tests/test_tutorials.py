"""Tutorials say what their outputs show.

A number with a unit in their prose is one that a cell of its section shows or that some cell types;
and sentences that compare are held against the numbers that they compare.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager

TUTORIALS = {
    path.name[:2]: path for path in sorted(Path(__file__).parents[1].glob("notebooks/*.ipynb"))
}

#: How many of its base a unit is: seconds, bytes (a KB of our own tables is 1024 of them) or one.
UNITS = {
    "s": 1, "second": 1, "ms": 1e-3, "µs": 1e-6, "minute": 60, "hour": 3600, "h": 3600,
    "kB": 1e3, "KB": 2**10, "MB": 1e6, "GB": 1e9, "MB/s": 1e6, "GB/s": 1e9, "Mbit/s": 1e6,
    "%": 0.01, "times": 1, "samples/s": 1,
    "GFLOP": 1e9, "PFLOP": 1e15, "TFLOP/s": 1e12,
}  # fmt: skip
WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "twelve": 12, "sixteen": 16, "twenty": 20, "sixty": 60,
}  # fmt: skip
NUMBER = r"(?<![\w.])(\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)"
UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
MEASURE = re.compile(rf"(?:{NUMBER}|\b({'|'.join(WORDS)})\b)\s*({UNIT})s?(?![\w/])")

#: How far plans were off, as the guide has it.
OFF = re.search(
    r"the median error is (\d+) %, .*?the largest error is (\d+) %.*"
    r"points of \d+ systems: mean error ([\d.]+) %",
    (Path(__file__).parents[1] / "docs/measured/plan.md").read_text(),
    re.DOTALL,
)
assert OFF

#: What is neither shown nor typed, by tutorial and text: how it follows from what the prose names.
FOLLOWS = {
    ("06", "346 KB"): 88_522 * 4 / 2**10,  # weights of four bytes
    ("06", "28 ms"): 1e3 * 88_522 * 4 * 8 / 100e6,  # at 100 Mbit/s
    # Convolutions of 3 x 3 for 128 filters, three times two operations each, halved four times.
    ("07", "1.3 GFLOP"): 6e-9 * 9 * 128 * (64**2 * 3 + 128 * (32**2 + 16**2 + 8**2 + 4**2)),
    ("07", "10 TFLOP/s"): 10,  # supposed
    ("07", "two minutes"): 1e6 * 1.3e9 / 10e12 / 60,
    ("08", "0.03 PFLOP"): 6 * 10.8e6 * 465_048 / 1e15,
    ("11", "110 kB"): 110,  # of ImageNet
    ("11", "0.7 GB/s"): 16 * 400 * 110e3 / 1e9,
    ("14", "0.15 GB"): 160 * 240 * 240 * 4 * 4 / 1e9,
    ("14", "0.02 GB"): 5.6e6 * 4 / 1e9,  # weights of that network
    ("15", "49 times"): (224 / 32) ** 2,  # pixels
    ("15", "11%"): float(OFF[1]),
    ("15", "83%"): float(OFF[2]),
    ("15", "9.9%"): float(OFF[3]),
}


@dataclass(frozen=True)
class Section:
    """From one heading to the next."""

    prose: str
    code: str
    outputs: str


def sections(path: Path) -> list[Section]:
    found: list[dict[str, str]] = [{"prose": "", "code": "", "outputs": ""}]
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            found[-1]["code"] += source + "\n"
            found[-1]["outputs"] += "".join(map(shown, cell["outputs"]))
            continue
        first, *others = re.split(r"^(?=## )", source, flags=re.MULTILINE)
        found[-1]["prose"] += first + "\n"
        found += [{"prose": one + "\n", "code": "", "outputs": ""} for one in others]
    return [Section(**one) for one in found]


def shown(output: dict) -> str:
    """The text of an output."""
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    return "".join(text) + "\n"


def said(prose: str) -> Iterator[tuple[str, float, float, float]]:
    """Each number with a unit: as it stands, its value, the unit's, and how exact it is."""
    prose = re.sub(r"^ {4}.*$|`[^`]*`", "", prose, flags=re.MULTILINE)  # what is typed
    for match in MEASURE.finditer(prose):
        number, word, unit = match.groups()
        value = WORDS[word] if word else float(number.replace(",", ""))
        places = 0 if word or "." not in number else len(number.split(".")[1])
        yield match[0], value, UNITS[unit], 10.0**-places


def numbers(text: str) -> Iterator[tuple[float, bool]]:
    """All that are in it, in the base of their unit, and whether they have one."""
    for match in re.finditer(rf"{NUMBER} ?({UNIT})?s?(?![\w/])", text):
        value = float(match[1].replace(",", ""))
        yield value * UNITS.get(match[2], 1), bool(match[2])


def is_among(value: float, unit: float, exact: float, known: Iterator[tuple[float, bool]]) -> bool:
    """Whether one of them, rounded, is that value; without a unit, it may be of this unit."""
    return any(
        abs(one / scale - value) <= exact / 2 + 1e-9 * value
        for one, has_unit in known
        for scale in ({unit} if has_unit else {unit, 1.0})
    )


@pytest.mark.parametrize("number", TUTORIALS)
def test_numbers_in_prose_are_those_of_cells(number):
    parts = sections(TUTORIALS[number])
    sizes = parts[0].code  # are set in the first cells
    wrong = []
    for part in parts:
        cells = "\n".join((part.outputs, part.code, sizes))
        for text, value, unit, exact in said(part.prose):
            follows = FOLLOWS.get((number, text))
            known = numbers(cells) if follows is None else iter([(follows, False)])
            if not is_among(value, unit, exact, known):
                wrong.append(text)
    assert not wrong


def of(fit: str, what: str) -> str:
    """A regular expression for what the card of a fit says."""
    return rf"{fit} · finished .*?median step {what}"


#: Sentences that compare: tutorial, what its prose says, a regular expression that finds numbers in
#: the text of its outputs, and whether they are so.
COMPARED = [
    ("01", "do not expect two ranks to be faster than one process",
     r"one process, all cores: ([\d.]+) s two ranks, half of the cores each: ([\d.]+) s",
     lambda one, two: two > 0.8 * one),
    ("02", "The line above the table says which schedule is the fastest",
     r"zb-v is the fastest;.* 1f1b 2 [\d.]+ ms ([\d,]+) .* zb-v\* 4 [\d.]+ ms ([\d,]+)",
     lambda plain, fastest: fastest > plain),
    ("02", "data parallel is the faster way",
     of("balanced", r"([\d.]+) ms") + ".*" + of("whole", r"([\d.]+) ms"),
     lambda staged, parallel: staged > parallel),
    ("03", "until together they are nearly all of a step",
     of("slow_input", r"[^:]*: input (\d+)%,.*? skew (\d+)%"), lambda a, b: a + b > 80),
    ("03", "Less than in `healthy`",
     of("healthy", r"[^:]*:.*? work (\d+)%") + ".*" + of("small", r"[^:]*:.*? work (\d+)%"),
     lambda healthy, small: small < healthy),
    ("06", "most of a step is still exchange", of("late", r"[^:]*:.*? exchange (\d+)%"),
     lambda share: share > 50),
    ("06", "`qsgd` sends less than a seventh", r"allreduce ([\d.]+) KB.* qsgd ([\d.]+) KB",
     lambda all_of_it, some: some < all_of_it / 7),
    ("06", "`late` sends no less", r"allreduce ([\d.]+) KB.* late ([\d.]+) KB",
     lambda all_of_it, late: late >= all_of_it),
    ("06", "compression makes it no shorter, and it costs accuracy",
     r"default" + 2 * r" ([\d.]+) ms a step, accuracy ([\d.]+)% ?(?:compressed)?",
     lambda ms, right, ms_of_less, right_of_less: ms_of_less >= ms and right_of_less < right),
    ("07", "a step takes longer than data parallel",
     r"data parallel ([\d.]+) ms a step pipeline ([\d.]+) ms a step",
     lambda parallel, staged: staged > parallel),
    ("08", "a step of it is shorter than one of the pipeline below",
     of("parallel", r"([\d.]+) ms") + ".*" + of("staged", r"([\d.]+) ms"),
     lambda parallel, staged: parallel < staged),
    ("09", "At some scales there is half of it or less", r"made beside true: ([\d.]+) to",
     lambda least: 0.2 < least < 0.6),
    ("10", "one call delivers many times what it does of single images",
     r"JPEG throttled storage ([\d,]+).* TFRecord throttled storage ([\d,]+)",
     lambda single, many: many > 5 * single),
    ("10", "Input no longer limits training", of("fast", r"[^:]*: input (\d+)%"),
     lambda share: share < 10),
    ("12", "that is a sixth", r"exchange: (\d+) kB, with LoRA (\d+) kB",
     lambda before, after: 5.5 < before / after < 6.5),
    ("15", "few ranks do best with small batches, many with large ones",
     r"hours of all ranks 1 ([\d.]+)\*? ([\d.]+) .*? 4,096 ([\d.]+)\*? ([\d.]+)",
     lambda small, large, small_of_many, large_of_many: (
         small < large and small_of_many > large_of_many)),
    ("15", "4,096 ranks are not even twice as fast as 1,024",
     r"hours of all ranks .*? 1,024 ([\d.]+)\*? .*? 4,096 ([\d.]+)",
     lambda few, many: many > 0.5 * few),
    ("15", "the ring is faster for large gradients even on thousands of ranks",
     r"25 million weights on p2-8xlarge:.* halving is faster than the ring from ([\d,]+) ranks",
     lambda crossing: crossing > 4000),
    ("15", "takes much longer than the allreduce on many",
     r"65,536 ([\d.]+) [\d.]+ [\d.]+ ([\d,.]+) [\d.]+ p2-8xlarge",
     lambda allreduce, qsgd: qsgd > 10 * allreduce),
]  # fmt: skip


@pytest.mark.parametrize(("number", "sentence", "pattern", "holds"), COMPARED)
def test_what_is_compared_is_so(number, sentence, pattern, holds):
    parts = sections(TUTORIALS[number])
    assert sentence in " ".join("".join(part.prose for part in parts).split())
    found = re.search(pattern, " ".join("".join(part.outputs for part in parts).split()))
    assert found and holds(*(float(one.replace(",", "")) for one in found.groups()))


@pytest.mark.parametrize("number", TUTORIALS)
def test_to_open_and_save_a_tutorial_does_not_change_it(number):
    book = nbformat.read(TUTORIALS[number], as_version=nbformat.NO_CONVERT)
    spec = KernelSpecManager().get_kernel_spec(book.metadata.kernelspec.name)
    assert book.metadata.kernelspec.display_name == spec.display_name  # JupyterLab writes it
    assert nbformat.writes(book) + "\n" == TUTORIALS[number].read_text()
