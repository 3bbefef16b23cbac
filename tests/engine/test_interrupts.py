"""An interrupt is raised wherever it finds the code."""

import signal
import subprocess
import sys
import time

#: Most of the time a destructor runs, in which Python raises nothing.
CODE = """
from tnt_notebook.jupyter.interrupts import lose_none


class Slow:
    def __del__(self):
        for _ in range(20_000):
            pass


def work():
    while True:
        Slow()
        for _ in range(2_000):
            pass


lose_none()
for _ in range(20):
    try:
        print("begins", flush=True)
        work()
    except KeyboardInterrupt:
        pass
"""


def test_none_is_lost_in_a_destructor():
    process = subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        for _ in process.stdout:
            time.sleep(0.01)  # else the signal would find the print, and no destructor
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
