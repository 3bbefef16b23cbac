"""The tasks in torch, as the layers that may be cut apart."""

from __future__ import annotations

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
    return [_Block(task.shape[1], 4) for _ in range(8)]


class _Block(nn.Module):
    """An encoder block that normalises first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.dense = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.dense(self.second(x))


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
