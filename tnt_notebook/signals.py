"""Signals by which the notebook, or a batch system, asks a rank for something."""

from __future__ import annotations

import signal

#: To end the running fit after its current step.
STOP = signal.SIGUSR1

#: To leave the running fit after its current step with a checkpoint: time is running out. What LSF
#: and Grid Engine send before a time limit, too.
SUSPEND = signal.SIGUSR2

#: To free this rank, and all others, from waiting for each other: it works also where the main
#: thread is in a call of C.
FREE = signal.SIGRTMIN + 4

#: To write into the log where each thread is.
STACKS = signal.SIGRTMIN + 5

#: To print nothing for a moment: the notebook has more to show than it can.
QUIET = signal.SIGRTMIN + 6
