"""What a person may ask for, as the notebook knows it without loading the ranks' side.

Plain constants, and the same as the ranks know: a test compares them.
"""

from __future__ import annotations

#: How ranks reach each other.
TRANSPORTS = ("auto", "shm", "mpi", "gpi")

#: How many progress threads a rank may have.
MAX_LANES = 8

#: What ranks can exchange.
DTYPES = ("float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8")

#: What happens to a fit when a rank dies: it ends, goes on with fewer, or with new ones.
ON_FAILURE = ("stop", "shrink", "restart")

#: What starts the engines: this machine, hosts reached by ssh, or a batch system.
BATCH_SYSTEMS = ("slurm", "pbs", "lsf", "sge")
LAUNCHERS = ("local", "ssh", *BATCH_SYSTEMS)
