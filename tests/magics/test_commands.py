"""What a person types, and what comes back."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from tests.support import gpi2
from tests.support.cells import TRAIN
from tnt_notebook.cluster import Cluster
from tnt_notebook.errors import RankError
from tnt_notebook.magics.session import Session


def typed(shell: InteractiveShell, cell: str) -> str:
    """Runs a cell and returns all that it shows."""
    with capture_output(display=False) as shown:
        shell.run_cell(cell)
    return shown.stdout + shown.stderr


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%tnt_fit --mesh heigth=2\n1", "UsageError: --mesh heigth=2: did you mean height?"),
        ("%tnt_cluster begin", "invalid choice: 'begin' (choose from"),
        ("%tnt_cluster strat -n 2", "'list', 'attach', 'detach'): did you mean start?"),
        ("%tnt_cluster start --gups 2", "UsageError: there is no --gups: did you mean --gpus?"),
        ("%tnt_cluster start --ranks 2", "UsageError: there is no --ranks: did you mean -n?"),
        ("%tnt_cluster start --zz=2", "UsageError: there is no --zz: see %tnt_cluster -h"),
        ("%tnt_cluster start --launcher slrm", "'lsf', 'sge'): did you mean slurm?"),
        ("%tnt_cluster start -n 2 --preload tensor", "argument --preload: invalid choice: 'tens"),
        ("%tnt_bench --rouns 3 allreduce", "there is no --rouns: did you mean --rounds?"),
        ("%tnt_cluster start", "ClusterError: start needs the number of ranks"),
        ("%tnt_cluster start -n two", "argument -n: invalid int value: 'two'"),
        ("%tnt_cluster start -n 0", "ClusterError: -n 0: a cluster has 1 to 65536 ranks."),
        ("%tnt_cluster start -n -1", "ClusterError: -n -1: a cluster has 1 to 65536 ranks."),
        ("%tnt_cluster start -n 65537", "ClusterError: -n 65537: a cluster has 1 to 65536 ranks."),
        ("%tnt_cluster start -n 65536", "-n 65536: the memory of this machine is enough for"),
        ("%tnt_cluster start -n 2 --interface no0", "--interface no0: this host has lo (127.0.0.1"),
        ("%tnt_cluster start -n 2 --env 'A=b", "UsageError: a quote is not closed: 'A=b"),
        ("%tnt_cluster start -n 2 --gpus 9999", "ClusterError: --gpus 9999: this machine has"),
        ("%tnt_cluster start -n 2 --transport tcp", "argument --transport: invalid choice: 'tcp'"),
        ("%tnt_cluster start -n 2 --lanes 9", "ClusterError: --lanes 9: a rank has 1 to 8 progr"),
        ("%tnt_cluster start -n 2 --lanes one", "argument --lanes: invalid int value: 'one'"),
        ("%tnt_cluster start -n 2 --link 0", "--link 0: it must be a number of Mbit/s above 0."),
        ("%tnt_cluster start -n 2 --link fast", "argument --link: invalid float value: 'fast'"),
        ("%tnt_cluster status --transport mpi", "UsageError: --transport goes with start only"),
        ("%tnt_cluster stop none", "ClusterError: There is no cluster 'none'"),
        ("%tnt_cluster status --gpus 1", "UsageError: --gpus goes with start only"),
        ("%tnt_cluster status", "NoClusterError: No cluster is running. Start one: %tnt_cluster"),
        ("%tnt_cluster stop", "NoClusterError"),
        ("%%tnt\n1", "NoClusterError"),
        ("%%tnt --ranks x\n1", "argument --ranks: 'x': write ranks like 0,2-3"),
        ("%tnt_push", "UsageError: the following arguments are required: NAME"),
        ("%tnt_push nothing_like_it", "not defined in this notebook: nothing_like_it"),
        ("%tnt_pull x", "NoClusterError"),
        ("%%tnt_fit --exchange 3x\n1", "'3x': it is one of allreduce, sharded, late, qsgd"),
        ("%%tnt_fit --exchange late:step=1\n1", "late has no option 'step=1', it takes steps=..."),
        ("%%tnt_fit --exchange late --bucket-mb 1\n1", "Give one of exchange, bucket_mb"),
        ("%%tnt_fit --name 3x\n1", "UsageError: --name 3x: a variable cannot have this name"),
        ("%%tnt_fit --name for\n1", "UsageError: --name for: a variable cannot have this name"),
        ("%%tnt_fit --name ''\n1", "UsageError: --name : a variable cannot have this name"),
        ("%%tnt_fit --name print\n1", "UsageError: --name print: the notebook itself needs this"),
        ("%%tnt_fit --name get_ipython\n1", "the notebook itself needs this name"),
        (f"%%tnt_fit --name {'x' * 300}\n1", "a name has at most 100 characters"),
        (
            "%%tnt_fit --checkpoint ''\n1",
            "UsageError: --checkpoint '': no folder can have this nam",
        ),
        ('%%tnt_fit --checkpoint " "\n1', "UsageError: --checkpoint ' ': no folder can have this"),
        ("%%tnt_fit --checkpoint ~no.body/a\n1", "'~no.body/a': no folder can have this name"),
        ("%%tnt_fit --checkpoint it's\n1", "UsageError: a quote is not closed: it's"),
        ("%%tnt_fit --bucket-mb many\n1", "argument --bucket-mb: invalid float value: 'many'"),
        ("%%tnt_fit --schedule zb-h1\n1", "UsageError: --schedule: only with --pipeline"),
        ("%%tnt_fit --pipeline 2 --schedule 2f2b\n1", "--schedule: invalid choice: '2f2b'"),
        ("%%tnt_sweep\n1", "UsageError: the following arguments are required: NAME=VALUES"),
        ("%%tnt_sweep x=1|2 --each 2 y=3\nx + y", "y=3: that is one value, so there is nothing"),
        ("%%tnt_sweep x=1|2 --sampler tpa\nx", "'grid', 'cmaes'): did you mean tpe?"),
        ("%%tnt_sweep x=1|2 --each 0\nx", "UsageError: --each must be at least 1, not 0"),
        ("%%tnt_sweep x=1|2 --trials 0\nx", "UsageError: --trials must be at least 1, not 0"),
        ("%%tnt_sweep x=1|2 --objective f1\nx", "add whether more is better, f1:max, or less"),
        ("%%tnt_sweep x=1|2 --objective f1:most\nx", "write METRIC:max or METRIC:min, as val_"),
        ("%%tnt_sweep x=1|2 --value x\nx", "--value: give it a name, and whether more"),
        ("%%tnt_sweep x=1|2 --value x= --objective x:max\nx", "'x=' is not a Python expression"),
        ("%%tnt_sweep x=1|2 --timeout soon\nx", "'soon' is not a duration: write 90s, 10m or 1.5h"),
        ("%%tnt_sweep x=1|2 --study /\nx", "--study /: write the name of a file"),
        ("%%tnt_sweep x=0..1.5 --sampler grid\nx", "SweepError: grid tries all values, and x"),
        ("%%tnt_sweep x=1|2 --sampler cmaes\nx", "SweepError: cmaes takes numbers only, and x"),
        ("%%tnt_sweep x=1|2\nx", "NoClusterError: No cluster is running."),
        ("%%tnt_fit --pipeline 0\n1", "UsageError: --pipeline must be at least 1, not 0"),
        ("%%tnt_fit --pipeline 2 --memory-limit 4XB\n1", "'4XB': write sizes like 4GB or 800MB"),
        ("%%tnt_fit --memory-limit 4GB\n1", "UsageError: --memory-limit: only with --pipeline"),
        ("%tnt_plan", "NoClusterError: No cluster is running. Start one: %tnt_cluster start"),
        ("%tnt_plan model other", "unrecognized arguments: other"),
        ("%tnt_plan --schedule 2f2b", "argument --schedule: invalid choice: '2f2b'"),
        ("%tnt_plan --pipeline 0", "UsageError: --pipeline must be at least 1, not 0"),
        ("%tnt_plan --micro-batches 0", "UsageError: --micro-batches must be at least 1, not 0"),
        ("%tnt_plan --batch-size 0", "UsageError: --batch-size must be at least 1, not 0"),
        ("%tnt_plan --memory-limit much", "'much': write sizes like 4GB or 800MB"),
        ("%tnt_plan --schedule all --stages-per-rank 2", "goes with one schedule, and not with"),
        ("%tnt_plan --name 3x", "--name 3x: a variable cannot have this name"),
        ("%tnt_bench scan", "invalid choice: 'scan' (choose from"),
        ("%tnt_bench allreduce", "NoClusterError"),
        ("%tnt_bench allreduce --dtype int8", "argument --dtype: invalid choice: 'int8'"),
        ("%tnt_bench allreduce --algorithms ring,", "'ring,': write names like ring,direct"),
        ("%tnt_bench allreduce --max-mb nan", "--max-mb nan: the largest vector has 1 KB or more"),
        ("%tnt_bench allreduce --name 3x", "--name 3x: a variable cannot have this name"),
        ("%tnt_bench rules --save", "UsageError: --save goes with allreduce only"),
        ("%tnt_bench training", "NoClusterError"),
        ("%tnt_bench allreduce mlp", "UsageError: allreduce takes no more: mlp is too much"),
        ("%tnt_trace dance", "invalid choice: 'dance' (choose from"),
        ("%tnt_trace show x y", "UsageError: show takes no more: y is too much"),
        ("%tnt_trace list x", "UsageError: list takes no more: x is too much"),
        ("%tnt_trace export --all", "UsageError: --all goes with list and remove, and no ID"),
        ("%tnt_trace list --to x.json", "UsageError: --to goes with export only"),
        ("%tnt_trace compare x", "compare needs two runs: %tnt_trace compare ID1 ID2"),
        ("%tnt_trace remove", "remove needs to know which: %tnt_trace remove ID, or --all"),
        ("%tnt_trace show --name 3x", "--name 3x: a variable cannot have this name"),
    ],
)
def test_mistakes_get_one_clear_sentence(shell, cell, message):
    shown = typed(shell, cell)
    assert message in shown
    assert "Traceback" not in shown and len(shown.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("magic", "kind", "parts"),
    [
        ("tnt_cluster", "line", ["start", "--gpus G", "logs", "Examples::", "restart"]),
        ("tnt", "cell", ["%%tnt", "--ranks", "Examples::"]),
        ("tnt_fit", "cell", ["%%tnt_fit", "--name", "--wait", "--bucket-mb", "fit.stop()"]),
        ("tnt_plan", "line", ["--pipeline P", "--schedule", "plan.step_s", "Examples::", "4GB"]),
        ("tnt_bench", "line", ["allreduce", "--max-mb M", "--save", "bench.rows", "Examples::"]),
        ("tnt_trace", "line", ["list", "--to FILE", "--all", "Examples::", "to_pandas", "512 MB"]),
        ("tnt_push", "line", ["NAME", "Examples::"]),
        ("tnt_pull", "line", ["NAME", "--rank R", "Examples::"]),
    ],
)
def test_help_is_complete(shell, magic, kind, parts):
    help_text = shell.find_magic(magic, kind).__doc__
    assert [part for part in parts if part not in help_text] == []


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("%tnt_cluster -h", ["logs [RANK]  what ranks wrote", "Options of each: %tnt_cluster st"]),
        ("%tnt_cluster start --help", ["-n N  ", "--gpus G  ", "Examples: %tnt_cluster?"]),
        ("%tnt_cluster -h detach", ["%tnt_cluster detach: leaves", "--keep HOURS"]),
        ("%tnt_push -h", ["%tnt_push: Copies variables", "NAME  variables of this notebook"]),
        ("%tnt_pull -h", ["--rank R  rank to copy from (default: 0)"]),
        ("%tnt_plan -h", ["--pipeline P ", "--name NAME "]),
        (
            "%tnt_bench -h",
            ["how fast the ranks exchange data, by size", "each: %tnt_bench allreduce -h"],
        ),
        ("%tnt_bench input -h", ["%tnt_bench input [DATASET]: what loaders", "--latency MS  "]),
        ("%tnt_bench allreduce -h", ["%tnt_bench allreduce: how fast", "--in-place "]),
        ("%tnt_trace -h", ["list|show|export|compare|remove\n"]),
        ("%%tnt -h", ["%%tnt: Runs the cell", "--ranks R  which ranks: 0,2-3"]),
        ("%%tnt_fit --help", ["%%tnt_fit: Runs ordinary Keras code", "--wait "]),
        ("%%tnt_fit -h\nthis is not run", ["%%tnt_fit: Runs ordinary Keras code"]),
    ],
)
def test_each_magic_has_a_short_help(shell, line, parts):
    shown = typed(shell, line)
    assert [part for part in parts if part not in shown] == []
    assert len(shown.splitlines()) < 50 and "Error" not in shown
    assert "--missing" not in shown  # which says something to a restart alone


def test_a_dry_run_shows_the_script_and_starts_nothing(shell):
    shown = typed(
        shell,
        "%tnt_cluster start -n 8 --launcher pbs --modules cuda,hdf5 --extra '-l nodes=2:ppn=4' "
        '--extra "-W umask=077" --env "A=b c" --dry-run',
    )
    lines = shown.splitlines()
    for line in ("#PBS -l nodes=2:ppn=4", "#PBS -W umask=077", "module load hdf5 || exit"):
        assert line in lines
    assert "NoClusterError" in typed(shell, "%tnt_cluster status")


def test_loading_the_extension_is_light():
    code = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "tnt_notebook")
import tnt_notebook.cluster
print([name for name in ("tensorflow", "keras", "mpi4py") if name in sys.modules])
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@gpi2.needed
def test_status_says_that_ranks_exchange_by_gpi(shell, monkeypatch):
    monkeypatch.setenv("TNT_SHARED_MEMORY", "0")
    assert typed(shell, "%tnt_cluster start -n 2 --transport gpi") == "2 ranks are ready\n"
    table = typed(shell, "%tnt_cluster status").splitlines()
    assert [line.split()[3] for line in table[1:3]] == ["gpi", "gpi"]
    assert table[3:] == ["ranks exchange by gpi: TNT_SHARED_MEMORY=0 turns shared memory off"]


def test_a_day_with_a_cluster(shell):
    assert typed(shell, "%tnt_cluster start -n 2") == "2 ranks are ready\n"
    assert "ClusterError: A cluster of 2 ranks is already there" in typed(
        shell, "%tnt_cluster start -n 3"
    )
    table = typed(shell, "%tnt_cluster status").splitlines()
    assert table[0].split() == [
        *("rank", "host", "node", "link", "pid", "runs", "on", "GPU", "memory", "state")
    ]
    assert all(" core" in line for line in table[1:3])
    assert [(line.split()[0], line.split()[3], line.split()[-1]) for line in table[1:3]] == [
        ("0", "shm", "idle"),
        ("1", "shm", "idle"),
    ]
    assert table[3:] == ["ranks exchange by shared memory: ranks of a host share memory"]
    typed(shell, "a, b = [1, 2], {'c': 3}\ndef double(x): return 2 * x")
    assert typed(shell, "%tnt_push a b double") == ""
    rank = "from tnt_notebook import comm\nrank = comm.rank()\n"
    assert typed(shell, f"%%tnt\n{rank}print(double(a), b)\nd = [rank]") == (
        "ranks 0-1: [1, 2, 1, 2] {'c': 3}\n"
    )
    assert typed(shell, "%%tnt --ranks 1\nrank") == "rank 1: 1\n"
    assert typed(shell, "%tnt_pull d --rank 1\nprint(d)") == "[1]\n"
    assert "rank 0: 'e' is not defined" in typed(shell, "%tnt_pull e")
    shown = typed(shell, "%%tnt\nif rank == 1: raise KeyError('odd')\ncomm.world().barrier()")
    assert "rank 1:" in shown and "KeyError: 'odd'" in shown and "/tnt_notebook/" not in shown
    assert "rank 0: freed from waiting" in shown
    assert isinstance(shell.user_ns.get("_exc", RankError("")), RankError)
    assert "[1, 2, 1, 2]" in typed(shell, "%tnt_cluster logs 1")
    assert typed(shell, "%tnt_cluster restart") == "2 ranks are ready\n"
    assert "NameError" in typed(shell, "%%tnt\nd")
    assert typed(shell, "%tnt_cluster stop") == "cluster stopped\n"
    assert "NoClusterError" in typed(shell, "%%tnt\n1")


def test_a_cluster_that_was_taken_can_be_taken_back(shell_with_ranks, two_ranks):
    shell = shell_with_ranks
    for action in ("%%tnt\n1", "%tnt_cluster stop"):
        other = Cluster.attach(two_ranks, force=True)
        assert f"take it back: %tnt_cluster attach {two_ranks} --force" in typed(shell, action)
        other.run("x = 1")
        back = typed(shell, f"%tnt_cluster attach {two_ranks} --force")
        assert back == f"2 ranks of cluster {two_ranks} are here again\n"
        assert typed(shell, "%%tnt\nx") == "ranks 0-1: 1\n"


def test_a_fit_is_bound_to_a_name_and_waited_for(shell_with_ranks, monkeypatch):
    shell = shell_with_ranks
    train = TRAIN.format(epochs=2)
    shown = typed(shell, f"%%tnt_fit --wait --name first --bucket-mb 2{train}")
    assert "first · finished in" in shown
    assert "ranks 0-1: <History of 2 epochs: loss" in shown
    assert len(shell.user_ns["first"].history["loss"]) == 2
    monkeypatch.setenv("TNT_NONINTERACTIVE", "1")
    typed(shell, f"%%tnt_fit{train}")
    assert shell.user_ns["fit"].state == "finished"
    assert "The cell calls neither fit" in typed(shell, "%%tnt_fit\n1")
    assert (failed := shell.user_ns["fit"]).state == "failed"
    for magic in ("%%tnt", "%%tnt_fit"):
        shown = typed(shell, f"{magic}\nprint('never')\nmodel.fit(x, y")
        assert shown.splitlines() == [
            "line 3 of the cell:", "    model.fit(x, y", "             ^",
            "SyntaxError: '(' was never closed (nothing was sent to the ranks)",
        ]  # fmt: skip
    assert shell.user_ns["fit"] is failed


def test_a_fit_that_failed_is_told_of_unless_the_cell_replaces_it(capsys):
    session = Session(InteractiveShell.instance())
    failed = SimpleNamespace(title="fit", state="failed", unseen="fit has failed: no data")
    for cell, told in (
        ("%%tnt_fit --ranks 2\nmodel.fit(x)", False), ("%%tnt_fit --name other\n1", True),
        ("fit.history", True), ("%%tnt_sweep --name fit\n", False), ("%%tnt\n1", True),
    ):  # fmt: skip
        session._fits.append(failed)
        session.tell_failures(SimpleNamespace(raw_cell=cell))
        assert capsys.readouterr().err == ("fit has failed: no data\n" if told else "")
        session.tell_failures(SimpleNamespace(raw_cell="1"))
        assert capsys.readouterr().err == ""  # once


@pytest.mark.parametrize(("magic", "first", "listed"), [
    ("%tnt_cluster", "starts, monitors and stops the ranks that cells run on", "restart"),
    ("%tnt_bench", "measures what the running ranks can do", "allreduce"),
    ("%tnt_trace", "Lists, shows, exports and compares runs", "list|show|export"),
])  # fmt: skip
def test_a_magic_without_words_lists_what_it_can_do(shell, magic, first, listed):
    shown = typed(shell, magic)
    assert shown.startswith(f"{magic}: {first}") and listed in shown
