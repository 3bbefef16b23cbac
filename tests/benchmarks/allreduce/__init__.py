"""The race of allreduces, float32: this backend, MPI libraries, gloo, and the floor.

    python -m tests.benchmarks.allreduce --ranks 2 4 --json race.json

`field` says who takes part, `race` runs them in interleaved rounds, `table` prints. The `rank_*`
modules run on the ranks; each offers one or both modes:

    in place    the vector is summed where it lies
    private     from one vector of the rank's own memory into another
"""
