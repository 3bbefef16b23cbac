"""Published points, system by system, and what is assumed of each. Nothing is fitted to the points.

A system is a machine with a model and a framework, of which there are points for two numbers of
devices or more.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent

#: Numbers in the weights. Of images: keras.applications, and Krizhevsky (2014). Of CosmoFlow and
#: DeepCAM about what the reference implementations of MLPerf HPC have.
PARAMETERS = {
    "InceptionV3": 23.9e6, "ResNet-50": 25.6e6, "ResNet-152": 60.4e6, "AlexNet": 61e6,
    "VGG16": 138.4e6, "BERT-L": 336e6, "CosmoFlow": 9e6, "DeepCAM": 56e6,
}  # fmt: skip
NETWORKS = {
    "DGX-1 P100 NVLink": "dgx1-p100",
    "EC2 p2.8xlarge K80": "p2-8xlarge",
    "DGX A100 nodes of 8": "dgx-a100",
}
#: Micro-batches whose gradients are added up before they are exchanged, by devices: the column of
#: gradient accumulation in the README of the points.
STEPS = {
    "BERT-L s128 bf/fp16 bs312": {8: 32, 16: 16, 64: 4, 256: 1},
    "BERT-L s128 TF32 bs176": {8: 64, 16: 32, 64: 8, 256: 2},
    "BERT-L s512 fp16 bs40": {8: 96, 16: 48, 64: 12, 256: 3},
    "BERT-L s512 TF32 bs22": {8: 192, 16: 96, 64: 24, 256: 6},
}
#: Of MLPerf HPC: name, model, network, and the devices of each entry, which its name tells; of
#: NVIDIA's it tells nodes of 8 GPUs.
MLPERF = [
    ("Piz Daint, P100, TensorFlow", "CosmoFlow", "aries", {
        "v0.7 CSCS:daint_gpu_n128_tf2.2.0": 128, "v0.7 CSCS:daint_gpu_n256_tf2.2.0": 256,
    }),
    ("Cori, KNL, TensorFlow", "CosmoFlow", "aries", {
        "v0.7 LBNL:coriknl_n512_tf1.15.2": 512, "v0.7 LBNL:coriknl_n1024_tf1.15.2": 1024,
    }),
    ("ABCI, V100, TensorFlow", "CosmoFlow", "abci", {
        "v0.7 Fujitsu:abci_512xV100_tensorflow_closed": 512,
        "v0.7 Fujitsu:abci_2048xV100_tensorflow_open": 2048,
    }),
    ("JUWELS Booster, A100, MXNet", "CosmoFlow", "hdr-4xa100", {
        "v1.0 HelmholtzAI:juwelsbooster_gpu_n512_mxnet1.9": 512,
        "v1.0 HelmholtzAI:juwelsbooster_gpu_n1024_mxnet1.9": 1024,
    }),
    ("DGX A100, MXNet", "CosmoFlow", "dgx-a100", {
        "v1.0 NVIDIA:dgxa100_n16_ngc21.09_mxnet": 128,
        "v1.0 NVIDIA:dgxa100_n128_ngc21.09_mxnet": 1024,
    }),
    ("Piz Daint, P100, PyTorch", "DeepCAM", "aries", {
        "v1.0 CSCS:piz_daint_gpu_n128_pt1.9.0": 128, "v1.0 CSCS:piz_daint_gpu_n1024_pt1.9.0": 1024,
    }),
    ("JUWELS Booster, A100, PyTorch", "DeepCAM", "hdr-4xa100", {
        "v1.0 HelmholtzAI:juwelsbooster_gpu_n1024_pytorch1.10": 1024,
        "v1.0 HelmholtzAI:juwelsbooster_gpu_n2048_pytorch1.10": 2048,
    }),
    ("DGX A100, PyTorch", "DeepCAM", "dgx-a100", {
        "v1.0 NVIDIA:dgxa100_n64_ngc21.09_pytorch": 512,
        "v1.0 NVIDIA:dgxa100_n256_ngc21.09_pytorch": 2048,
    }),
]  # fmt: skip


class Point(NamedTuple):
    """Samples a second that devices together train, with so many of a micro-batch on each."""

    devices: int
    samples: float
    steps: int
    throughput: float


@dataclass(frozen=True)
class System:
    """One system.

    Attributes:
        network: its name, or a file.
        bytes: of gradients, as they are exchanged.
        points: those with the fewest devices first.
    """

    name: str
    model: str
    network: str
    bytes: int
    points: tuple[Point, ...]


def systems() -> list[System]:
    """All of them."""
    return [*_scaling(), *_mlperf()]


def _scaling() -> Iterator[System]:
    rows = _rows("scaling_points.csv")
    for (hardware, model), own in groupby(rows, lambda row: (row["hardware"], row["model"])):
        name, *_, batch = model.split()
        steps = STEPS.get(model, {})
        points = [
            Point(devices, float(batch.removeprefix("bs")), steps.get(devices, 1), float(rate))
            for devices, rate in ((int(row["devices"]), row["throughput"]) for row in own)
        ]
        number = 2 if re.search("fp16", model) else 4
        bytes = round(number * PARAMETERS[name])
        yield System(hardware, model, NETWORKS[hardware], bytes, tuple(sorted(points)))


def _mlperf() -> Iterator[System]:
    rows = {
        (f"{row['round']} {row['system']}", row["app"]): row
        for row in _rows("mlperf_hpc_points.csv")
    }
    for name, model, network, entries in MLPERF:
        points = []
        for entry, devices in entries.items():
            row = rows[entry, model]
            share = float(row["global_batch"]) / devices
            points.append(Point(devices, share, 1, float(row["train_samples_per_s"])))
        path = FOLDER / "networks" / f"{network}.toml"
        where = str(path) if path.exists() else network
        yield System(name, model, where, round(4 * PARAMETERS[model]), tuple(sorted(points)))


def _rows(name: str) -> list[dict[str, str]]:
    with open(FOLDER / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
