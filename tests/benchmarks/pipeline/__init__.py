"""Training steps of pipelines: this project's schedules, torch's 1F1B over gloo, one rank alone.

    python -m tests.benchmarks.pipeline --json pipeline.json

Every rank computes on one core with one thread. The micro-batches of a task always have the same
number of samples, so that the batch grows with their number; ``alone`` is one process that trains
on the whole batch at once, while the other core rests. Efficiency is its step over (ranks x step),
torch's by torch's own step alone.
"""
