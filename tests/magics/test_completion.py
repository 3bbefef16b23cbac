"""Tab, as IPython's completer answers it."""

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from tnt_notebook.cluster.launch.options import OPTIONS


def completions(shell: InteractiveShell, text: str) -> dict[str, str]:
    """By text its kind."""
    with provisionalcompleter():
        return {c.text: c.type for c in shell.Completer.completions(text, len(text))}


def completed(shell: InteractiveShell, text: str) -> list[str]:
    return sorted(completions(shell, text))


OF_START = {option.flag for option in OPTIONS.values() if option.typed and option.flag != "-n"}
FLAGS = sorted(OF_START | {"--dry-run"})
FOR_JOBS = {"--time", "--mem", "--partition", "--account"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "%tnt_cluster ",
            ["attach", "detach", "list", "logs", "restart", "start", "status", "stop"],
        ),
        ("%tnt_cluster st", ["start", "status", "stop"]),
        ("tnt_cluster lo", ["logs"]),
        ("%tnt_cluster start --", FLAGS),
        ("%tnt_cluster start -n 4 --g", ["--gpus"]),
        ("%tnt_cluster start --gpus 1 -", [*(flag for flag in FLAGS if flag != "--gpus"), "-n"]),
        ("%tnt_cluster start --launcher ssh --", sorted({*FLAGS} - FOR_JOBS - {"--launcher"})),
        ("%tnt_cluster start --env A=1 --e", ["--env", "--extra"]),
        ("%tnt_cluster restart --", ["--missing"]),
        ("%tnt_cluster detach --", ["--keep"]),
        ("%tnt_cluster start --hostfile ho", ["hosts.txt", "hosts/"]),
        ("%tnt_cluster start --transport ", ["auto", "gpi", "mpi", "shm"]),
        ("%tnt_cluster start --transport m", ["mpi"]),
        ("%tnt_plan --mem", ["--memory-limit"]),
        ("%tnt_plan --network hd", ["hdr-4xa100"]),
        ("%tnt_plan --network ho", ["hosts.txt", "hosts/"]),
        ("%tnt_plan model --schedule z", ["zb-h1", "zb-v"]),
        ("%tnt_plan --schedule a", ["all"]),
        ("%tnt_plan --mesh ", ["data=", "depth=", "height=", "model=", "stage=", "width="]),
        ("%%tnt_fit --mesh data=2,h", ["data=2,height="]),
        ("%%tnt_fit --mesh model=2 --layout conv.*:f", ["conv.*:filters="]),
        (
            "%%tnt_fit --mesh data=2,a=2,b=2 --layout dense:columns=",
            [
                "dense:columns=a",
                "dense:columns=b",
            ],
        ),
        ("%%tnt_fit --mesh model=2 --layout a:rows=model --lay", ["--layout"]),
        ("%tnt_bench ", ["allreduce", "input", "rules", "training"]),
        ("%tnt_bench input --s", ["--seconds", "--side", "--storages"]),
        ("%tnt_bench allreduce --r", ["--rounds"]),
        ("%tnt_bench training --r", ["--ranks", "--recompute", "--report", "--rounds"]),
        ("%%tnt_bench training --report ho", ["hosts.txt", "hosts/"]),
        ("%tnt_bench training h", ["hep_cnn"]),
        ("%tnt_bench training --exchange l", ["late", "local"]),
        ("%tnt_bench allreduce --dtype f", ["float16", "float32", "float64"]),
        ("%%tnt --", ["--ranks"]),
        ("%%tnt_fit --w", ["--wait"]),
        ("%%tnt_fit --exchange l", ["late", "local"]),
        ("%%tnt_sweep x=1|2 --sam", ["--sampler"]),
        ("%%tnt_sweep x=1|2 --pruner h", ["halving", "hyperband"]),
        ("%tnt_pull history --", ["--rank"]),
        ("%tnt_push train_", ["train_images", "train_labels"]),
        ("%tnt_push train_images train_", ["train_labels"]),
    ],
)
def test_subcommands_flags_variables_and_files(shell, text, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.txt").touch()
    (tmp_path / "hosts").mkdir()
    shell.push({"train_images": 1, "train_labels": 2, "other": 3})
    assert completed(shell, text) == expected


def test_each_has_a_kind_for_jupyterlab_to_show(shell):
    shell.push({"train_images": 1})
    for text, found in (
        ("%tnt_cluster sto", {"stop": "action"}),
        ("%tnt_cluster start --tran", {"--transport": "option"}),
        ("%tnt_cluster start --transport m", {"mpi": "value"}),
        ("%tnt_push train_", {"train_images": "variable"}),
    ):
        assert completions(shell, text) == found


def test_names_of_magics_complete_too(shell):
    assert completed(shell, "%tnt_cl") == ["%tnt_cluster"]


def test_other_lines_are_left_to_others(shell):
    shell.push({"train_images": 1})
    assert "train_images" in completed(shell, "print(train_")


def test_unloading_takes_it_away(shell):
    shell.run_line_magic("unload_ext", "tnt_notebook")
    assert "start" not in completed(shell, "%tnt_cluster st")
    assert shell.find_line_magic("tnt_cluster") is None
    shell.run_line_magic("load_ext", "tnt_notebook")
    assert completed(shell, "%tnt_cluster sta") == ["start", "status"]
