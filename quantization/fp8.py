"""Per-tensor fp8: weights as float8, with one scale per tensor if the scheme has scales.

scale = max(max |w| / largest fp8, tiny), in float16        code = fp8(w / scale)        w' = code * scale

If the scheme also rounds inputs of matmuls, their scale ``q_calibration_scale`` has the same formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod

import ml_dtypes
import numpy as np

from quantization.schemes import Scheme

SMALLEST_SCALE_STEPS = 512.0
BLOCK_ELEMENTS = 1 << 18
Blocks = Callable[[], Iterable[np.ndarray]]


def tensors(shape: tuple[int, ...], scheme: Scheme, layout: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of the tensors of a weight of ``shape``. q_calibration_scale: scale of the inputs, unused if
    these are not rounded."""
    made = {"q_weight": (shape, scheme.storage_dtype)}
    if scheme.scaled:
        made |= {"q_scale": ((1,), "float32"), "q_calibration_scale": ((1,), "float32")}
    return made


def encode_rows(
    blocks: Blocks, shape: tuple[int, ...], scheme: Scheme, layout: str, input_scale: float = 1.0
) -> dict[str, np.ndarray]:
    """Quantize to codes float8 of ``shape``; with scales also q_scale and q_calibration_scale, float32 [1].

    input_scale: the value of q_calibration_scale.

    Raises ValueError for NaN, infinities and values that overflow float16.
    """
    codes = np.empty((prod(shape[:-1]), shape[-1]), _code_dtype(scheme))
    scale = tensor_scale(largest_magnitude(blocks()), scheme) if scheme.scaled else np.float32(1)
    start = 0
    for block in blocks():
        for part in _parts(block.reshape(-1, shape[-1])):
            values = part.astype(np.float16).astype(np.float32)
            if not np.isfinite(values).all():
                raise ValueError("a weight that float16 cannot hold")
            codes[start : start + len(part)] = saturated(values / scale, codes.dtype)
            start += len(part)
    made = {"q_weight": codes.reshape(shape)}
    if scheme.scaled:
        made |= {"q_scale": np.array([scale], np.float32), "q_calibration_scale": np.array([input_scale], np.float32)}
    return made


def decode_rows(
    made: dict[str, np.ndarray], scheme: Scheme, shape: tuple[int, ...], layout: str
) -> Iterator[np.ndarray]:
    """Dequantize to blocks of rows [n, K] in float16."""
    scale = made["q_scale"].astype(np.float16) if scheme.scaled else np.float16(1)
    for part in _parts(made["q_weight"].reshape(-1, shape[-1])):
        yield part.astype(np.float16) * scale


def max_error(weights: np.ndarray, scale: float, scheme: Scheme) -> np.ndarray:
    """Upper bound of |w - decoded| for float16 weights: half a step of the code, plus float16 rounding."""
    info = ml_dtypes.finfo(_code_dtype(scheme))
    magnitudes = np.abs(weights.astype(np.float32))
    step = np.maximum(magnitudes * float(info.eps), float(info.smallest_subnormal) * scale)
    return step / 2 + magnitudes * 2.0**-9 + 2.0**-23


def tensor_scale(largest: np.float32, scheme: Scheme) -> np.float32:
    """The scale of a tensor with maximum magnitude ``largest``, with intermediate rounding to float16.

    Infinite if ``largest`` overflows float16.
    """
    top = largest_code(scheme)
    smallest = np.float16(1.0 / (top * SMALLEST_SCALE_STEPS))
    with np.errstate(over="ignore"):
        return np.float32(max(np.float16(np.float16(largest) / np.float16(top)), smallest))


def largest_code(scheme: Scheme) -> float:
    """The largest finite number of the codes' dtype."""
    return float(ml_dtypes.finfo(_code_dtype(scheme)).max)


def largest_magnitude(blocks: Iterable[np.ndarray]) -> np.float32:
    with np.errstate(over="ignore"):
        tops = [np.abs(part.astype(np.float16)).max() for block in blocks for part in _parts(block) if part.size]
    return np.float32(max(tops, default=0))


def _parts(rows: np.ndarray) -> Iterator[np.ndarray]:
    step = max(1, BLOCK_ELEMENTS // max(1, prod(rows.shape[1:])))
    return (rows[start : start + step] for start in range(0, len(rows), step))


def saturated(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round to nearest even; values beyond the largest code saturate."""
    top = np.float32(ml_dtypes.finfo(dtype).max)
    return np.clip(values, -top, top).astype(dtype)


def _code_dtype(scheme: Scheme) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, scheme.storage_dtype))
