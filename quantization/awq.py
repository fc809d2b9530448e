"""AWQ: 4-bit codes with a zero point and a scale per group of inputs (Lin et al. 2023, arXiv:2306.00978).

    w' = (code - zero) * scale

Words hold the codes of eight consecutive outputs: output ``i`` is at bit ``4 * (i % 2 * 4 + i // 2)``. Codes are only
copied from checkpoints: choosing them would need activations.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlc_errors import UnsupportedError
from quantization.group import model_dtype
from quantization.schemes import Scheme

NIBBLES = np.array([0, 4, 1, 5, 2, 6, 3, 7])
"""The nibble of each of a word's eight outputs."""


def tensors(shape: tuple[int, ...], scheme: Scheme, layout: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of the tensors of a weight of ``shape`` [..., N, K].

    Raises UnsupportedError for sizes that AWQ cannot store.
    """
    *outer, outputs, inputs = shape
    if outputs % len(NIBBLES) or inputs % scheme.group:
        raise UnsupportedError(
            f"{scheme.name}: got a weight of {outputs} outputs and {inputs} inputs; "
            f"expected multiples of {len(NIBBLES)} and {scheme.group}",
            hint="choose q4f16_1 or q4f16_3, which have no such limits",
        )
    words, groups = outputs // len(NIBBLES), scheme.groups(inputs)
    return {
        "qweight": ((*outer, inputs, words), scheme.storage_dtype),
        "qzeros": ((*outer, groups, words), scheme.storage_dtype),
        "scales": ((*outer, groups, outputs), scheme.model_dtype),
    }


def decode_rows(
    made: dict[str, np.ndarray], scheme: Scheme, shape: tuple[int, ...], layout: str
) -> Iterator[np.ndarray]:
    """Dequantize weights of ``shape`` [..., N, K], one matrix of rows [n, K] at a time, in the model dtype."""
    stored = [array.reshape(-1, *array.shape[-2:]) for array in (made["qweight"], made["qzeros"], made["scales"])]
    for words, zeros, scales in zip(*stored, strict=True):
        levels = unpack(words).astype(np.int16) - np.repeat(unpack(zeros).astype(np.int16), scheme.group, axis=0)
        dtype = model_dtype(scheme)
        yield np.ascontiguousarray((levels.astype(dtype) * np.repeat(scales, scheme.group, axis=0)).astype(dtype).T)


def unpack(words: np.ndarray) -> np.ndarray:
    """Unpack words uint32 [n, m] to codes uint8 [n, 8 m]."""
    shifts = (NIBBLES * 4).astype(np.uint32)
    return ((words[..., None] >> shifts) & np.uint32(15)).astype(np.uint8).reshape(len(words), -1)
