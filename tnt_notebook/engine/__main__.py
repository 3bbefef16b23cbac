"""``python -m tnt_notebook.engine``: what mpiexec starts for every rank."""

import signal

from tnt_notebook import protocol

# Before anything that starts threads (NumPy does): a thread that has not blocked it would get the
# signal that a thread of `tnt_notebook.engine.cell` waits for, and end the process.
signal.pthread_sigmask(signal.SIG_BLOCK, [protocol.FREE])

from tnt_notebook.engine.start import main  # noqa: E402

if __name__ == "__main__":
    main()
