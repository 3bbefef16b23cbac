"""``%tnt_bench input``: what it shows, what it leaves, and what it refuses."""

import pytest

from tests.magics.notebook import PLOTLY, ended, shown
from tests.magics.test_commands import typed

SMALL = "--formats jpeg --storages local --calls 1 --prefetch 2 --side 16"
DATA = """%%tnt
import tensorflow as tf
train = tf.data.Dataset.range(64).map(lambda i: tf.cast(i, "float32")).batch(8)
def numbers():
    yield from range(9)
made = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), "int32")).batch(3)
none = train.take(0)
kept = train.cache("no/such/folder")
"""


def test_loaders_and_datasets_of_the_cells(shell_with_ranks):
    shell = shell_with_ranks
    refused = typed(shell, f"%tnt_bench input {SMALL} --seconds 0.15")
    assert refused == (
        "UsageError: --seconds 0.15 is too short for 2 measurements: at least 0.2, or fewer "
        "formats, storages or calls\n"
    )
    text = typed(shell, f"%tnt_bench input {SMALL} --seconds 0.6 --need 1e9 --name loaders")
    lines = text.splitlines()
    assert lines[0].startswith("1 loader measured in ")
    assert lines[1].startswith("samples/s to all ranks (* the fastest): images of 16 x 16 pixels")
    head = next(line for line in lines if line.startswith("format"))
    assert head.split()[:4] == ["format", "storage", "1", "call"] and "feeds" in head
    assert lines[-1].startswith("JPEG from local files feeds 0 of 2 ranks: ")
    loaders = shell.user_ns["loaders"]
    assert [row["format"] for row in loaders.rows] == ["synthetic", "jpeg"]
    assert loaders.complete and loaders.need == 1e9 and len(loaders.figure.data) > 2

    assert "'train' is not defined in the cells of the ranks" in typed(
        shell, "%tnt_bench input train"
    )
    typed(shell, DATA)
    own = typed(shell, "%tnt_bench input train --seconds 0.6 --need 1")
    assert own.startswith("train measured in ") and "map, a sample" in own
    assert own.strip().endswith("training needs 1.0. Input does not limit training.")
    assert shell.user_ns["bench"]["reading"] == ""
    assert "Every rank maps all: from_generator" in typed(
        shell, "%tnt_bench input made --seconds 0.3"
    )
    assert typed(shell, "%tnt_bench input none").startswith(
        "DataError: 'none' cannot be read: it has no element\n"
    )
    assert "DataError: 'kept' caches in no/such/folder" in typed(shell, "%tnt_bench input kept")


def test_a_notebook_keeps_table_and_figure_also_when_interrupted(notebook):
    cell = notebook.begin("%tnt_bench input --formats jpeg --calls 1,2 --seconds 60")
    notebook.messages_until(cell, lambda messages: "0 of 7: synthetic" in shown(messages))
    notebook.manager.interrupt_kernel()
    messages = notebook.messages_until(cell, ended, 120)
    rest = shown(messages)
    assert "measured before the interrupt: nothing" in rest and "Traceback" not in rest
    left = "import glob, os, tempfile\nglob.glob(tempfile.gettempdir() + '/tnt-loading-*')"
    assert notebook.run(f"%%tnt\n{left}") == "ranks 0-1: []\n"
    cell = notebook.begin(f"%tnt_bench input {SMALL} --seconds 0.4")
    messages = notebook.messages_until(cell, ended)
    assert "0 of 2: synthetic" in shown(messages)
    rich = [m["content"]["data"] for m in messages if m["msg_type"] == "display_data"]
    (table,) = [data for data in rich if "<table" in data.get("text/html", "")]
    assert '<td style="text-align: left">JPEG</td>' in table["text/html"]
    (figure,) = [data[PLOTLY] for data in rich if PLOTLY in data]
    assert "1 parallel call" in {trace.get("name") for trace in figure["data"]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--formats jpg", "--formats jpg: it is one of raw, png, jpeg, tfrecord, parquet: did you"),
        ("--storages nfs", "--storages nfs: it is one of local, throttled"),
        ("--calls 0", "--calls: from 1 to 256 parallel calls"),
        ("--calls two", "argument --calls: 'two': write numbers like 1,4,16"),
        ("--bandwidth nan", "--bandwidth nan: from 0.01 to 1e+06"),
        ("train --side 9", "--side is of generated files, and train is read as it is"),
        ("--rounds 3", "--rounds goes with allreduce and training only"),
        ("--seconds 9", "NoClusterError"),
    ],
)
def test_mistakes_get_one_clear_sentence(shell, options, message):
    shown_text = typed(shell, f"%tnt_bench input {options}")
    assert message in shown_text and len(shown_text.strip().splitlines()) == 1
