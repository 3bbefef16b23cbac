"""Checksums of TFRecord's lengths: CRC-32C (Castagnoli), masked as TensorFlow does."""

from __future__ import annotations

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected
_MASK = 0xA282EAD8


def masked_crcs(rows: np.ndarray) -> np.ndarray:
    """Of each row of bytes (uint8, shape (rows, bytes)) the checksum, uint32."""
    table = _table()
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = table[(crc ^ column) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    return ((crc >> 15) | (crc << 17)) + np.uint32(_MASK)


def _table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)
