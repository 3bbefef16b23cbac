"""The whole way through a real Jupyter kernel: what a notebook would show, and what is left."""

import psutil

from tests.magics.notebook import TRAIN, Notebook, ended, shown
from tests.support.waiting import eventually
from tnt_notebook.warden import processes_of


def cluster_id(notebook: Notebook) -> str:
    cell = "from tnt_notebook.magics import sessions; print(sessions[get_ipython()].cluster.id)"
    return notebook.run(cell).strip()


def test_cells_errors_and_interrupts(notebook):
    assert notebook.run("%%tnt\nfrom tnt_notebook import comm\nprint('hi')") == "ranks 0-1: hi\n"
    html = "from IPython.display import HTML, display; display(HTML('<b>bold</b>'))"
    assert notebook.run(f"%%tnt\n{html}") == ("ranks 0-1:\n<IPython.core.display.HTML object>\n")
    raising = "if comm.rank() == 1: raise ValueError('bad')\ncomm.world().barrier()"
    error = notebook.run(f"%%tnt\n\n{raising}")
    assert "ValueError: bad" in error and "rank 0: freed from waiting" in error
    assert "----> 3 if comm.rank() == 1" in error  # as the notebook numbers its lines
    missed = notebook.run("%%tnt\ndef load():\n    return images\nload()")
    assert "name 'images' is not defined" in missed and "%tnt_push images copies" in missed
    assert "%tnt_push" not in notebook.run("%%tnt\ndef f(): x; x = 1\nf()")
    for stop in ("breakpoint()", "%debug"):
        assert "cannot be stopped in a debugger" in notebook.run(f"%%tnt\n{stop}")
    assert notebook.run("%%tnt\n%%capture\nprint('hidden')") == ""
    assert notebook.run("%%tnt\n    a = 1\n    print(a)") == "ranks 0-1: 1\n"
    assert "execution.py" not in error and "cluster.py" not in error

    sleeping = notebook.begin("%%tnt\nimport time\nprint('asleep', flush=True); time.sleep(60)")
    notebook.messages_until(sleeping, lambda messages: "asleep" in shown(messages))
    notebook.manager.interrupt_kernel()
    rest = notebook.messages_until(sleeping, ended)
    assert "interrupting ranks 0-1" in shown(rest) and "KeyboardInterrupt" in shown(rest)
    assert notebook.run("%%tnt\nprint('next')") == "ranks 0-1: next\n"

    # As the kernel does it with what the notebook's own TensorFlow writes.
    line = "I0000 00:00:17.5 12 port.cc:153] oneDNN custom operations are on."
    writing = f"import sys\n_ = sys.stderr.write('{line}\\nlast words\\n')"
    assert notebook.run(writing) == "last words\n"

    much = notebook.run("%%tnt\nfor _ in range(1000): print('x' * 1000)")
    assert 400_000 < len(much) < 700_000 and "are not shown here" in much
    kept = "len(str(getattr(get_ipython().history_manager, 'outputs', '')))"
    assert int(notebook.run(f"print({kept})")) < 100_000  # the kernel lives for days


def test_tab_completes_what_lives_on_ranks(notebook):
    def offered(text):
        reply = notebook.client.complete(text, reply=True, timeout=120)["content"]
        return [text[: reply["cursor_start"]] + name for name in reply["matches"]]

    notebook.run("%%tnt\nimport fractions\nhalf_of_it = fractions.Fraction(1, 2)")
    assert offered("%%tnt\nimport os\nprint(half_o") == ["%%tnt\nimport os\nprint(half_of_it"]
    assert "%%tnt_fit\nhalf_of_it.numerator" in offered("%%tnt_fit\nhalf_of_it.nu")
    assert offered("%tnt_pull half") == ["%tnt_pull half_of_it"]
    notebook.run("here = 1\n%tnt_pull half_of_it")
    assert offered("print(her") == ["print(here"]  # in a cell of the notebook, as ever


CHANGES = """%%tnt
from IPython.display import clear_output, display, update_display
display("first", display_id="mine")
print("between")
changing = display("same", display_id=True)
changing.update("same again")
update_display(f"of {comm.rank()}", display_id="mine")
"""


def test_displays_change_in_place_and_outputs_are_cleared(notebook):
    notebook.run("%%tnt\nfrom tnt_notebook import comm")
    messages = notebook.messages_until(notebook.begin(CHANGES), ended)
    displays = [m for m in messages if m["msg_type"] in ("display_data", "update_display_data")]
    texts = [m["content"]["data"]["text/plain"] for m in displays]
    assert texts == [
        "ranks 0-1: 'first'", "ranks 0-1: 'same'", "ranks 0-1: 'same again'",
        "rank 0: 'of 0'", "rank 1: 'of 1'",
    ]  # fmt: skip
    first, same, again, *of_each = (m["content"]["transient"]["display_id"] for m in displays)
    assert same == again and displays[2]["msg_type"] == "update_display_data"
    assert len({first, same, *of_each}) == 4
    later = notebook.begin("%%tnt\n_ = changing.update('in another cell')")
    (changed,) = (
        m for m in notebook.messages_until(later, ended) if m["msg_type"] == "update_display_data"
    )
    assert changed["content"]["transient"]["display_id"] == same

    clearing = "%%tnt\nfor i in range(3):\n    clear_output(wait=True)\n    print(i, comm.rank())"
    messages = notebook.messages_until(notebook.begin(clearing), ended)
    clears = [m["content"] for m in messages if m["msg_type"] == "clear_output"]
    assert clears == [{"wait": True}] * 3
    late = "%%tnt\nimport threading\nthreading.Timer(0.2, print, ['late']).start()"
    cell = notebook.begin(late)
    notebook.messages_until(cell, lambda messages: "ranks 0-1: late" in shown(messages))


def test_a_second_interrupt_returns_at_once(notebook, tmp_path):
    ends = tmp_path / "ends"
    stubborn = f"""%%tnt
import pathlib, signal, time
before = signal.signal(signal.SIGINT, signal.SIG_IGN)
print('stubborn', flush=True)
while not pathlib.Path({str(ends)!r}).exists():
    time.sleep(0.01)
signal.signal(signal.SIGINT, before)
print('end')"""
    cell = notebook.begin(stubborn)
    notebook.messages_until(cell, lambda messages: "stubborn" in shown(messages))
    notebook.manager.interrupt_kernel()
    notebook.messages_until(cell, lambda messages: "interrupting" in shown(messages))
    notebook.manager.interrupt_kernel()
    assert "The interrupted cell still runs" in shown(notebook.messages_until(cell, ended, 3))
    cell = notebook.begin("%%tnt\nprint('following')")
    waits = "waiting for the interrupted cell to end"
    notebook.messages_until(cell, lambda messages: waits in shown(messages))
    ends.touch()
    assert shown(notebook.messages_until(cell, ended)).endswith(
        "ranks 0-1: end\nranks 0-1: following\n"
    )


def test_a_fit_runs_while_the_notebook_goes_on(notebook):
    cell = notebook.begin("%%tnt_fit" + TRAIN.format(epochs=100_000))
    began = notebook.messages_until(cell, ended)
    assert "fit: live view of 2 ranks" in shown(began)
    # What the ranks print comes later, and still under the cell of the fit.
    notebook.messages_until(cell, lambda messages: "ranks 0-1: building" in shown(messages))
    assert notebook.run("1 + 1") == "2\n"
    poll = "import time\nwhile not fit.frames: time.sleep(0.05)\nprint(fit.state)"
    assert notebook.run(poll) == "running\n"
    assert "busy" in notebook.run("%tnt_cluster status")
    behind = notebook.begin("%%tnt\nprint('behind it')")
    notebook.messages_until(behind, lambda messages: "waiting for fit to end" in shown(messages))
    notebook.manager.interrupt_kernel()
    assert shown(notebook.messages_until(behind, ended)).rstrip() == (
        "KeyboardInterrupt: This cell waits no longer, and was not sent to the ranks; what it "
        "waited for goes on."
    )
    assert notebook.run("print(fit.state)") == "running\n"
    stopped = notebook.run("fit.stop(); fit.wait().state")
    assert "stopped" in stopped
    assert notebook.run("'tensorflow' in __import__('sys').modules") == "False\n"


def test_a_fit_that_failed_in_the_background_is_told_once_by_the_next_cell(notebook):
    failing = notebook.begin("%%tnt_fit --name bad\nfrom tnt_notebook import comm\n\n1 / 0")
    began = notebook.messages_until(failing, lambda seen: "bad · failed after" in shown(seen))
    card = "\n".join(line.rstrip() for line in shown(began).splitlines())
    assert "  ranks 0-1: ZeroDivisionError: division by zero\n\n  line 4 of the cell: 1 / 0" in card
    assert "\n  ----> 4 1 / 0\n" in card  # in the traceback
    assert notebook.run("1 + 1") == (
        "bad has failed: ranks 0-1: ZeroDivisionError: division by zero "
        "(its card says where, bad.wait() raises it)\n2\n"
    )
    assert notebook.run("1 + 1") == "2\n"

    notebook.run("%%tnt_fit --name bad\nimport time; time.sleep(0.5); 1 / 0")
    looking = "import time\nwhile not bad.error: time.sleep(0.01)\nprint(bad.state)"
    assert notebook.run(looking) == "failed\n"
    assert notebook.run("%%tnt\nprint('next')") == "ranks 0-1: next\n"


def test_an_interrupt_of_the_idle_kernel_stops_the_fit(notebook):
    notebook.run("%%tnt_fit" + TRAIN.format(epochs=100_000))
    notebook.run("import time\nwhile not fit.frames: time.sleep(0.05)")
    notebook.manager.interrupt_kernel()
    assert notebook.run("fit.wait(300).state").endswith("'stopped'\n")
    assert notebook.run("len(fit.history['loss']) < 100_000") == "True\n"
    waiting = notebook.begin("%%tnt_fit --wait" + TRAIN.format(epochs=100_000))
    notebook.messages_until(waiting, lambda messages: "building" in shown(messages))
    notebook.manager.interrupt_kernel()
    stopped = shown(notebook.messages_until(waiting, ended))
    assert "stopping fit after the current step" in stopped and "Error" not in stopped
    notebook.manager.interrupt_kernel()  # nothing runs: nothing happens
    assert notebook.run("%%tnt\nprint(len(model.history.epoch) > 0)") == "ranks 0-1: True\n"


def test_ranks_and_a_fit_outlive_a_restart_and_a_kill_of_the_kernel(own_notebook):
    notebook = own_notebook
    marker = cluster_id(notebook)
    notebook.run("%%tnt\nanswer = 42")
    notebook.run("%%tnt_fit --name digits" + TRAIN.format(epochs=100_000))
    notebook.run("import time\nwhile not digits.frames: time.sleep(0.05)")
    notebook.manager.restart_kernel()
    notebook.client.wait_for_ready(120)
    assert len(processes_of(marker)) > 4
    notebook.run("%load_ext tnt_notebook")
    listed = notebook.run("%tnt_cluster list")
    assert marker in listed and "nobody" in listed and "a fit goes on" in listed
    cell = notebook.begin("%tnt_cluster attach")
    attached = notebook.messages_until(cell, ended)
    assert f"2 ranks of cluster {marker} are here again, a fit goes on" in shown(attached)
    assert "digits: live view of 2 ranks" in shown(attached)
    # What they printed since the fit began comes again, under the cell that attached.
    late = notebook.messages_until(cell, lambda messages: "ranks 0-1: building" in shown(messages))
    assert ".cc:" not in shown(late)  # TensorFlow's banner, which came before it
    notebook.run("import time\nwhile len(digits.frames) < 3: time.sleep(0.05)")
    assert notebook.run("digits.state") == "'running'\n"
    assert "stopped" in notebook.run("digits.stop(); digits.wait().state")
    assert "loss" in notebook.run("digits.history")
    last = "digits.frames[-1]['state'], len(digits.history['loss']) - digits.frames[-1]['epoch']"
    assert notebook.run(last) == "('stopped', 0)\n"  # the frame that rank 0 wrote last
    notebook.run("%tnt_cluster detach")
    again = notebook.run("%tnt_cluster attach\nprint(digits.state)")
    assert "are here again\n" in again and again.endswith("stopped\n")  # not "queued"
    assert notebook.run("%%tnt\nprint(answer)") == "ranks 0-1: 42\n"
    assert "this notebook" in notebook.run("%tnt_cluster list")

    owner = notebook.manager.provisioner.process.pid
    notebook.run("%tnt_cluster detach --keep 0.1")
    psutil.Process(owner).kill()
    assert len(processes_of(marker)) > 4
    notebook.manager.restart_kernel(now=True)
    notebook.client.wait_for_ready(120)
    notebook.run("%load_ext tnt_notebook")
    assert "are here again\n" in notebook.run(f"%tnt_cluster attach {marker[:4]}")
    assert notebook.run("%%tnt\nprint(answer)") == "ranks 0-1: 42\n"
    assert "live on for 1 s without an owner" in notebook.run("%tnt_cluster detach --keep 0.0003")
    eventually(lambda: not processes_of(marker))


def test_a_kernel_that_shuts_down_leaves_nothing(own_notebook):
    marker = cluster_id(own_notebook)
    own_notebook.manager.shutdown_kernel()
    assert processes_of(marker) == []
