"""Windows that move over a dimension: which rows of the input a row of the output is made of."""

from __future__ import annotations

from dataclasses import dataclass

from tnt_notebook.parallel.layers.boxes import Range, blocks


@dataclass(frozen=True)
class Window:
    """A window along one dimension, as convolutions and pooling have it.

    Attributes:
        size: rows of the input.
        kernel: rows in a window.
        stride: from a window to the next.
        dilation: from a row in a window to the next.
        padding: "valid", "same" or "causal".
    """

    size: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    padding: str = "valid"

    @property
    def extent(self) -> int:
        """From the first row of a window to after its last one."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def out(self) -> int:
        """Rows of the output."""
        if self.padding == "same":
            return -(-self.size // self.stride)
        padded = self.size + (self.extent - 1 if self.padding == "causal" else 0)
        return (padded - self.extent) // self.stride + 1

    @property
    def pad(self) -> tuple[int, int]:
        """Rows beyond the ends that windows have."""
        if self.padding == "causal":
            return self.extent - 1, 0
        if self.padding == "valid":
            return 0, 0
        total = max((self.out - 1) * self.stride + self.extent - self.size, 0)
        return total // 2, total - total // 2

    def rows(self, parts: int) -> tuple[Range, ...]:
        """Of each block of the output, the rows of the input that it is made of."""
        before = self.pad[0]
        return tuple(
            (begin * self.stride - before, (end - 1) * self.stride - before + self.extent)
            for begin, end in blocks(self.out, parts)
        )

    def inside(self, row: int) -> int:
        """How many rows of a window are not beyond the ends, without dilation.

        Args:
            row: of the output.
        """
        begin = row * self.stride - self.pad[0]
        return min(begin + self.kernel, self.size) - max(begin, 0)


@dataclass(frozen=True)
class TransposedWindow(Window):
    """The same of a transposed convolution: a row of the input adds to the rows of a window."""

    @property
    def pad(self) -> tuple[int, int]:
        """Rows that are left out before the output begins, and after it."""
        rest = max(self.extent - self.stride, 0) if self.padding == "same" else 0
        return rest // 2, rest - rest // 2

    @property
    def out(self) -> int:
        """Rows of the output."""
        return self.size * self.stride + max(self.extent - self.stride, 0) - sum(self.pad)

    def rows(self, parts: int) -> tuple[Range, ...]:
        """Of each block of the output, the rows of the input that add to it."""
        before, result = self.pad[0], []
        for begin, end in blocks(self.out, parts):
            first = -(-(begin + before - self.extent + 1) // self.stride)
            # Between windows that do not touch each other there are rows of none.
            first = min(first, (begin + before) // self.stride)
            result.append((first, (end - 1 + before) // self.stride + 1))
        return tuple(result)
