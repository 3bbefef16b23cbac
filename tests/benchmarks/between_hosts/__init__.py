"""Allreduce between hosts that are joined by 1 Gbit/s and 0.1 ms, emulated on this machine.

    python -m tests.benchmarks.between_hosts --json hosts.json

How much of what TCP carries over one link does an allreduce make use of, and what does it bring to
add up on each host first? Needs what `tests.support.hosts` needs: root, mostly.
"""
