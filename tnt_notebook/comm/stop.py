"""Requests to the running fit, as votes of this rank; one rank's vote is enough.

They stand here, and not with the training, because they may come before TensorFlow is loaded; in
signal handlers too, and from any thread.
"""

from __future__ import annotations

import threading

#: To end the fit after its current step, on all ranks.
end = threading.Event()

#: For a checkpoint after the current step; nothing where none are kept.
checkpoint = threading.Event()

#: To leave training there with a checkpoint, for another process to go on from.
leave = threading.Event()

#: That the ranks have agreed to end, in a step that all of them have done.
agreed = threading.Event()


def forget() -> None:
    """A request for one cell is not one for the next."""
    for request in (end, checkpoint, leave, agreed):
        request.clear()
