"""The tasks in torch, as the layers that may be cut apart."""

import time

import torch
from torch import nn

from tests.benchmarks.pipeline.tasks import DENSE, RESNET50, Task


def layers_of(task: Task) -> list[nn.Module]:
    """In order; each takes what the one before it gives."""
    torch.manual_seed(1)
    if task is DENSE:
        return [nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(8)]
    if task is RESNET50:
        return _resnet50()
    width = task.shape[1]
    options = {"dropout": 0.0, "batch_first": True, "norm_first": True}
    return [nn.TransformerEncoderLayer(width, 4, 4 * width, **options) for _ in range(8)]


def middle(layers: list[nn.Module], value: torch.Tensor) -> int:
    """Where a pipeline of two cuts them: by our rule, the slowest stage is as quick as it can be.

    Args:
        value: what the first layer takes.
    """
    seconds = []
    for layer in layers:
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            given = layer(value.detach().requires_grad_())
            given.sum().backward()
            times.append(time.perf_counter() - begin)
        seconds.append(min(times))
        value = given.detach()
    return min(range(1, len(layers)), key=lambda k: max(sum(seconds[:k]), sum(seconds[k:])))


def _normalised(taken: int, given: int, size: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(taken, given, size, stride, size // 2)
    return [convolution, nn.BatchNorm2d(given)]


class _Bottleneck(nn.Module):
    """He et al. 2016, Deep Residual Learning, section 4.1; the stride is at the first convolution,
    as in Keras."""

    def __init__(self, taken: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_normalised(taken, width, 1, stride), nn.ReLU(),
            *_normalised(width, width, 3), nn.ReLU(),
            *_normalised(width, 4 * width, 1),
        )  # fmt: skip
        same = taken == 4 * width
        self.around = nn.Sequential(*([] if same else _normalised(taken, 4 * width, 1, stride)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.around(x))


class _ChannelsFirst(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 3, 1, 2).contiguous()  # what is sent must be


def _resnet50() -> list[nn.Module]:
    begin = [_ChannelsFirst(), *_normalised(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    layers: list[nn.Module] = [nn.Sequential(*begin)]
    taken = 64
    for number, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << number
        for block in range(blocks):
            stride = 2 if block == 0 and number > 0 else 1
            layers.append(_Bottleneck(taken, width, stride))
            taken = 4 * width
    layers.append(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 10)))
    return layers
