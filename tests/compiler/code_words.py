"""Codes in 32-bit words, as ``mlc_compiler/tir/code_words.py`` describes them, unpacked one position at a time."""

from __future__ import annotations

import numpy as np

PLANES = {3: (2, 1), 5: (4, 1), 6: (4, 2)}
"""Bits of the low and of the high plane."""


def group_words(bits: int, group: int) -> int:
    """The number of words of a group."""
    return group * bits // 32 if group % (32 // bits) else group // (32 // bits)


def stored_codes(words: np.ndarray, bits: int, group: int) -> np.ndarray:
    """Unpack words [N, …] into codes int64 [N, K]."""
    if group % (32 // bits) == 0:
        return np.stack([_field(words, bits * i, bits) for i in range(32 // bits)], -1).reshape(len(words), -1)
    (low, high), units = PLANES[bits], words.reshape(len(words), -1, bits)
    codes = np.empty((*units.shape[:2], 32), np.int64)
    step = 0
    for word in range(low):
        for part in range(8 // low):
            for byte in range(4):
                upper = low + step * high // 8
                place = word * (32 // low) + byte * (8 // low) + part
                codes[..., place] = _field(units[..., word], 8 * byte + low * part, low)
                codes[..., place] |= _field(units[..., upper], 8 * byte + step * high % 8, high) << low
            step += 1
    return codes.reshape(len(words), -1)


def _field(words: np.ndarray, shift: int, bits: int) -> np.ndarray:
    return (words.astype(np.int64) >> shift) & ((1 << bits) - 1)
