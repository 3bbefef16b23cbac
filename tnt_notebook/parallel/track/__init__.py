"""Figures of fits, logged by rank 0 to the trackers that people use.

A tracker is a file here with a function ``begin(fit: Fit) -> Run`` (``tracker.py``), and a row of
the same name in ``TRACKERS`` of ``choices.py``. What is logged is in ``logged.py``: it reads the
frames that the live view is drawn from, and measures nothing.
"""
