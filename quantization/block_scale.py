"""Block-scaled fp8, the format of DeepSeek-V3's checkpoints: one scale per block of outputs and inputs.

scale = max |w| / largest fp8, in float32        code = fp8(w / scale)        w' = code * scale

Blocks at the ends of a matrix are smaller. The scale of a block of zeros is 1. Inputs x are rounded likewise if their
scales are in the checkpoint, one per block of inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod

import ml_dtypes
import numpy as np

from quantization.fp8 import saturated
from quantization.group import model_dtype
from quantization.schemes import Scheme

Blocks = Callable[[], Iterable[np.ndarray]]


def tensors(shape: tuple[int, ...], scheme: Scheme, layout: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of the tensors of a weight of ``shape`` [..., N, K]. activation_scale: of blocks of inputs."""
    *outer, outputs, inputs = shape
    groups = scheme.groups(inputs)
    scales = (*outer, -(-outputs // scheme.rows), groups)
    made: dict[str, tuple[tuple[int, ...], str]] = {
        "weight": (shape, scheme.storage_dtype),
        "weight_scale_inv": (scales, "float32"),
    }
    return {**made, "activation_scale": ((groups,), "float32")} if scheme.float8_inputs else made


def encode_rows(blocks: Blocks, shape: tuple[int, ...], scheme: Scheme, layout: str) -> dict[str, np.ndarray]:
    """Quantize to codes float8 of ``shape`` [..., N, K] and scales float32 [..., ceil(N / rows), ceil(K / group)].

    blocks() yields the weight in pieces of consecutive rows [..., K]; scheme: one without scales of inputs, which only
    checkpoints have. Raises ValueError for NaN and infinities.
    """
    made = {kind: np.empty(size, np.dtype(dtype)) for kind, (size, dtype) in tensors(shape, scheme, layout).items()}
    codes, scales = (array.reshape(-1, array.shape[-1]) for array in made.values())
    start = 0
    for number, strip in enumerate(_strips(blocks(), shape, scheme.rows)):
        values = strip.astype(np.float32)
        if not np.isfinite(values).all():
            raise ValueError("a weight that is not finite")
        scales[number] = _strip_scales(values, scheme, codes.dtype)
        quotients = values / _spread(scales[number], scheme, shape[-1])
        codes[start : start + len(strip)] = saturated(quotients, codes.dtype)
        start += len(strip)
    return made


def decode_rows(
    made: dict[str, np.ndarray], scheme: Scheme, shape: tuple[int, ...], layout: str
) -> Iterator[np.ndarray]:
    """Dequantize to blocks of rows [n, K] in the model dtype."""
    scales = made["weight_scale_inv"].reshape(-1, scheme.groups(shape[-1]))
    for number, strip in enumerate(_strips([made["weight"]], shape, scheme.rows)):
        yield (strip.astype(np.float32) * _spread(scales[number], scheme, shape[-1])).astype(model_dtype(scheme))


def _strips(blocks: Iterable[np.ndarray], shape: tuple[int, ...], rows: int) -> Iterator[np.ndarray]:
    """Yield strips of rows [n, K] that share scales; n is ``rows``, or less at the end of a matrix."""
    outputs, inputs = shape[-2:]
    first, waiting = 0, np.empty((0, inputs), np.float32)
    for block in blocks:
        more = block.reshape(prod(block.shape[:-1]), inputs)
        waiting = np.concatenate([waiting, more]) if len(waiting) else more
        while len(waiting) and len(waiting) >= (count := min(rows, outputs - first)):
            yield waiting[:count]
            first, waiting = (first + count) % outputs, waiting[count:]


def _strip_scales(values: np.ndarray, scheme: Scheme, dtype: np.dtype) -> np.ndarray:
    largest = np.abs(values).max(axis=0)
    tops = np.maximum.reduceat(largest, np.arange(0, len(largest), scheme.group))
    scales = tops / np.float32(ml_dtypes.finfo(dtype).max)
    return np.where(scales > 0, scales, np.float32(1))


def _spread(scales: np.ndarray, scheme: Scheme, inputs: int) -> np.ndarray:
    return np.repeat(scales, scheme.group)[:inputs]
