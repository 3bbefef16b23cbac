"""What a person may ask for: the notebook offers it, and the ranks check it."""

from __future__ import annotations

import math

#: How ranks reach each other.
TRANSPORTS = {
    "auto": "shared memory within a node, MPI between nodes",
    "shm": "shared memory; an error if the ranks are not on one node",
    "mpi": "MPI between all ranks",
    "gpi": "shared memory within a node, GPI-2 (GASPI) between nodes",
}

#: How many progress threads a rank may have; the backend's own limit.
MAX_LANES = 8


def is_rate(mbit: float | str) -> bool:
    """Whether an emulated link can have this rate, in Mbit/s; the environment says it as text."""
    try:
        return 0 < float(mbit) < math.inf
    except ValueError:
        return False


#: Algorithms are as good as each other when their times differ by no more.
ALIKE = 1.05

#: What ranks can exchange; in the order of the backend's numbers.
DTYPES = ("float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8")

#: What ranks do with their gradients, and the options of each.
EXCHANGES: dict[str, tuple[str, dict[str, str]]] = {
    "allreduce": (
        "the mean of all ranks' gradients: the result is that of one process",
        {"wire": "bfloat16 or float16, rounded: half the bytes", "bucket_mb": "MiB at a time"},
    ),
    "sharded": (
        "as allreduce, but one rank alone trains each weight, and keeps its optimizer state",
        {"bucket_mb": "MiB at a time", "small_kb": "all ranks train weights up to this many KiB"},
    ),
    "late": (
        "as allreduce, but applied a step late: the exchange is hidden behind a whole step",
        {
            "steps": "how late (1)", "warmup": "steps without delay at the start (0)",
            "wire": "as for allreduce", "bucket_mb": "as for allreduce",
        },
    ),
    "qsgd": (
        "gradients in a few bits per element, rounded at random",
        {"bits": "2, 4 or 8 (4)"},
    ),
    "onebit": (
        "the signs of gradients, and means; what this leaves out is added to the next gradients",
        {},
    ),
    "topk": (
        "the largest elements of gradients; the others are added to the next gradients",
        {"ratio": "share of the elements (0.01)"},
    ),
    "powersgd": (
        "gradients as matrices of low rank; what this leaves out is added to the next gradients",
        {"rank": "of the matrices (2)"},
    ),
    "local": (
        "each rank trains on its own; from time to time, all take the mean of their weights",
        {"every": "steps between two means (8)", "from_step": "steps before this begins (0)"},
    ),
    "elastic": (
        "each rank trains on its own, and is pulled towards a common centre",
        {"every": "steps between two moves (4)", "beta": "how far, for all ranks together (0.9)"},
    ),
    "gossip": (
        "each rank trains on its own, and takes the mean with one other rank during each step",
        {"partner": "rotating, or random (rotating)"},
    ),
    "server": (
        "each rank trains on its own, on weights that the ranks serve: none waits for a slower one",
        {"staleness": "steps that a rank may be ahead of another (4)"},
    ),
}  # fmt: skip


def split_exchange(text: str) -> tuple[str, dict[str, str | None]]:
    """``late:steps=1`` as its name and its options; None where an option has no value."""
    name, _, said = text.partition(":")
    options: dict[str, str | None] = {}
    for option in said.split(",") if said else ():
        key, is_there, value = option.partition("=")
        options[key] = value if is_there else None
    return name, options


#: Where figures of fits are logged: into what, unless a folder is named, and what to install.
TRACKERS = {
    "tensorboard": ("event files, in `logs`", "tensorboard"),
    "wandb": ("an offline run of Weights & Biases, in `wandb`", "wandb"),
    "mlflow": ("an MLflow store, `mlflow.db`", "mlflow"),
}

#: What happens to a fit when a rank dies: it ends, goes on with fewer, or with new ones.
ON_FAILURE = ("stop", "shrink", "restart")

#: What starts the engines: this machine, hosts reached by ssh, or a batch system.
BATCH_SYSTEMS = ("slurm", "pbs", "lsf", "sge")
LAUNCHERS = ("local", "ssh", *BATCH_SYSTEMS)
