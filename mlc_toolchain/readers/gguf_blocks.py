"""GGUF's block formats (llama.cpp's ggml-common.h): block sizes, and dequantization to float32.

Every ``_q…`` function takes blocks uint8 [n, block bytes] and returns float32 [n, block elements].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Blocks = np.ndarray
CHUNK_BLOCKS = 4096
IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)  # the non-linear 4-bit levels
FP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)  # doubled e2m1


@dataclass(frozen=True)
class BlockType:
    """A block format. elements, nbytes: per block. dtype: of ``decode``'s result; without decode, of the elements.

    codes: for formats with values (code - zero) * scale and one float16 scale at the start of the block: a function
    that returns the codes, uint8 or int8.
    """

    name: str
    elements: int
    nbytes: int
    decode: Callable[[Blocks], np.ndarray] | None = None
    dtype: str = "float32"
    codes: Callable[[Blocks], np.ndarray] | None = None
    zero: int = 0


def dequantize(blocks: Blocks, kind: BlockType) -> np.ndarray:
    """Dequantize blocks uint8 [n, nbytes] to float32 [n * elements], a chunk at a time."""
    assert kind.decode is not None
    values = np.empty((len(blocks), kind.elements), np.float32)
    for start in range(0, len(blocks), CHUNK_BLOCKS):
        chunk = slice(start, start + CHUNK_BLOCKS)
        values[chunk] = kind.decode(blocks[chunk])
    return values.reshape(-1)


def block_levels(blocks: Blocks, kind: BlockType) -> tuple[np.ndarray, np.ndarray]:
    """Integer levels int16 [n, elements] and scales float16 [n] of blocks of a format with ``codes``."""
    assert kind.codes is not None
    levels = kind.codes(blocks).astype(np.int16) - np.int16(kind.zero)
    return levels, np.ascontiguousarray(blocks[:, :2]).view("<f2")[:, 0]


def _half(blocks: Blocks, offset: int) -> np.ndarray:
    """The float16 at a byte offset of every block, as float32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, offset : offset + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Blocks) -> np.ndarray:
    """Unpack uint8 [n, b] to [n, 2b]: all low nibbles, then all high nibbles."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _fifth_bits(packed: Blocks) -> np.ndarray:
    """Unpack 4 bytes to the fifth bits of 32 codes, uint8 [n, 32] of 0 or 16."""
    return np.unpackbits(packed, axis=1, bitorder="little") << np.uint8(4)


def _q4_0_codes(b: Blocks) -> np.ndarray:
    return _nibbles(b[:, 2:])


def _q4_0(b: Blocks) -> np.ndarray:
    return (_q4_0_codes(b).astype(np.float32) - 8) * _half(b, 0)


def _q4_1(b: Blocks) -> np.ndarray:
    return _nibbles(b[:, 4:]).astype(np.float32) * _half(b, 0) + _half(b, 2)


def _q5_0_codes(b: Blocks) -> np.ndarray:
    return _nibbles(b[:, 6:]) | _fifth_bits(b[:, 2:6])


def _q5_0(b: Blocks) -> np.ndarray:
    return (_q5_0_codes(b).astype(np.float32) - 16) * _half(b, 0)


def _q5_1(b: Blocks) -> np.ndarray:
    codes = _nibbles(b[:, 8:]) | _fifth_bits(b[:, 4:8])
    return codes.astype(np.float32) * _half(b, 0) + _half(b, 2)


def _q8_0_codes(b: Blocks) -> np.ndarray:
    return b[:, 2:].view(np.int8)


def _q8_0(b: Blocks) -> np.ndarray:
    return _q8_0_codes(b).astype(np.float32) * _half(b, 0)


def _iq4_nl(b: Blocks) -> np.ndarray:
    return IQ4_VALUES[_nibbles(b[:, 2:])] * _half(b, 0)


def _mxfp4(b: Blocks) -> np.ndarray:
    scale = np.ldexp(np.float32(1), b[:, :1].astype(np.int32) - 128)  # 2^(e - 127), halved for the doubled levels
    return FP4_VALUES[_nibbles(b[:, 1:])] * scale


def _scaled(codes: np.ndarray, scales: np.ndarray, minima: np.ndarray | None = None) -> np.ndarray:
    """codes [n, 256] times scales [n, runs], one per 256 / runs consecutive codes, minus minima of the same shape."""
    runs = codes.astype(np.float32).reshape(len(codes), scales.shape[1], -1)
    values = runs * scales[..., None]
    if minima is not None:
        values -= minima[..., None]
    return values.reshape(len(codes), -1)


def _planes(packed: Blocks, run: int, shifts: tuple[int, ...], mask: int) -> np.ndarray:
    """Unpack codes [n, …] from bytes: for each run of ``run`` bytes, the bit plane of every shift in turn."""
    runs = packed.reshape(len(packed), -1, 1, run)
    planes = (runs >> np.array(shifts, np.uint8)[:, None]) & np.uint8(mask)
    return planes.reshape(len(packed), -1)


def _q2_k(b: Blocks) -> np.ndarray:
    scales = b[:, :16]
    codes = _planes(b[:, 16:80], 32, (0, 2, 4, 6), 3)
    step, minimum = _half(b, 80), _half(b, 82)
    return _scaled(codes, step * (scales & 15), minimum * (scales >> 4))


def _q3_k(b: Blocks) -> np.ndarray:
    low = _planes(b[:, 32:96], 32, (0, 2, 4, 6), 3).astype(np.int8)
    high = _planes(b[:, :32], 32, tuple(range(8)), 1).astype(np.int8)
    packed, tops = b[:, 96:104], b[:, 104:108]
    scales = _nibbles(packed) | (_planes(tops, 4, (0, 2, 4, 6), 3) << np.uint8(4))
    return _scaled(low + 4 * high - 4, _half(b, 108) * (scales.astype(np.float32) - 32))


def _six_bit_pairs(packed: Blocks) -> tuple[np.ndarray, np.ndarray]:
    """Unpack the 8 scales and 8 minima (6 bits each) of Q4_K or Q5_K blocks from 12 bytes."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=1)
    minima = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=1)
    return scales, minima


def _q4_k(b: Blocks) -> np.ndarray:
    scales, minima = _six_bit_pairs(b[:, 4:16])
    codes = _planes(b[:, 16:144], 32, (0, 4), 15)
    return _scaled(codes, _half(b, 0) * scales, _half(b, 2) * minima)


def _q5_k(b: Blocks) -> np.ndarray:
    scales, minima = _six_bit_pairs(b[:, 4:16])
    high = _planes(b[:, 16:48], 32, tuple(range(8)), 1)
    codes = _planes(b[:, 48:176], 32, (0, 4), 15) | (high << np.uint8(4))
    return _scaled(codes, _half(b, 0) * scales, _half(b, 2) * minima)


def _q6_k(b: Blocks) -> np.ndarray:
    low = _planes(b[:, :128], 64, (0, 4), 15)
    high = _planes(b[:, 128:192], 32, (0, 2, 4, 6), 3)
    codes = (low | (high << np.uint8(4))).astype(np.float32) - 32
    return _scaled(codes, _half(b, 208) * b[:, 192:208].view(np.int8))


def _iq4_xs(b: Blocks) -> np.ndarray:
    high = np.ascontiguousarray(b[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], axis=-1).reshape(len(b), 8)
    scales = (low | (high << 4)).astype(np.float32) - 32
    codes = _planes(b[:, 8:136], 16, (0, 4), 15)
    return _scaled(IQ4_VALUES[codes], _half(b, 0) * scales)


BLOCK_TYPES = {
    0: BlockType("F32", 1, 4),
    1: BlockType("F16", 1, 2, dtype="float16"),
    2: BlockType("Q4_0", 32, 18, _q4_0, codes=_q4_0_codes, zero=8),
    3: BlockType("Q4_1", 32, 20, _q4_1),
    6: BlockType("Q5_0", 32, 22, _q5_0, codes=_q5_0_codes, zero=16),
    7: BlockType("Q5_1", 32, 24, _q5_1),
    8: BlockType("Q8_0", 32, 34, _q8_0, codes=_q8_0_codes),
    10: BlockType("Q2_K", 256, 84, _q2_k),
    11: BlockType("Q3_K", 256, 110, _q3_k),
    12: BlockType("Q4_K", 256, 144, _q4_k),
    13: BlockType("Q5_K", 256, 176, _q5_k),
    14: BlockType("Q6_K", 256, 210, _q6_k),
    20: BlockType("IQ4_NL", 32, 18, _iq4_nl),
    23: BlockType("IQ4_XS", 256, 136, _iq4_xs),
    24: BlockType("I8", 1, 1, dtype="int8"),
    25: BlockType("I16", 1, 2, dtype="int16"),
    26: BlockType("I32", 1, 4, dtype="int32"),
    27: BlockType("I64", 1, 8, dtype="int64"),
    28: BlockType("F64", 1, 8, dtype="float64"),
    30: BlockType("BF16", 1, 2, dtype="bfloat16"),
    39: BlockType("MXFP4", 32, 17, _mxfp4),
}
