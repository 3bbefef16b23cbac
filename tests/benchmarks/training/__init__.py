"""Training steps: this project, MultiWorkerMirroredStrategy, torch DDP, and ranks on their own.

    python -m tests.benchmarks.training --json training.json

Every rank computes on one core with one thread, and has the same number of samples in each step.
The `rank_*` modules run on the ranks, and train for a turn when they are asked to. `alone` trains
on each rank without exchanging anything: the most that distributed training can reach.
"""
