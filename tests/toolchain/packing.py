"""Reference writers of AWQ and GPTQ layouts, one code at a time."""

import ml_dtypes
import numpy as np
import torch


def awq_words(codes):
    """uint8 [n, m] to int32 [n, m / 8]: of eight consecutive codes, number i goes to nibble (i % 2) * 4 + i // 2."""
    words = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
    for column in range(codes.shape[1]):
        i = column % 8
        words[:, column // 8] |= codes[:, column].astype(np.uint32) << np.uint32(4 * ((i % 2) * 4 + i // 2))
    return words.view(np.int32)


def stream_words(codes, bits):
    """uint8 [n, m] to int32 [n, m * bits / 32]: bit b of code i is bit i * bits + b of the row."""
    words = np.zeros((codes.shape[0], codes.shape[1] * bits // 32), np.uint32)
    for column in range(codes.shape[1]):
        for bit in range(bits):
            word, place = divmod(column * bits + bit, 32)
            words[:, word] |= ((codes[:, column] >> bit) & 1).astype(np.uint32) << np.uint32(place)
    return words.view(np.int32)


def random_codes(rng, outputs, inputs, group, bits, zero=None):
    """Codes uint8 [out, in], zero points uint8 [out, groups] and scales float16 [out, groups]."""
    codes = rng.integers(0, 1 << bits, (outputs, inputs), np.uint8)
    zeros = rng.integers(1, 1 << bits, (outputs, inputs // group), np.uint8)
    if zero is not None:
        zeros[:] = zero
    return codes, zeros, rng.uniform(0.001, 0.1, zeros.shape).astype(np.float16)


def values(codes, zeros, scales, index):
    return (codes.astype(np.float64) - zeros[:, index]) * scales.astype(np.float64)[:, index]


def awq_tensors(name, codes, zeros, scales):
    return {
        f"{name}.qweight": awq_words(np.ascontiguousarray(codes.T)),
        f"{name}.qzeros": awq_words(np.ascontiguousarray(zeros.T)),
        f"{name}.scales": np.ascontiguousarray(scales.T),
    }


def gptq_tensors(name, codes, zeros, scales, bits, index=None, offset=1):
    made = {
        f"{name}.qweight": np.ascontiguousarray(stream_words(codes, bits).T),
        f"{name}.qzeros": stream_words(np.ascontiguousarray((zeros - offset).astype(np.uint8).T), bits),
        f"{name}.scales": np.ascontiguousarray(scales.T),
    }
    return made if index is None else {**made, f"{name}.g_idx": index.astype(np.int32)}


def as_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.float8_e4m3fn:
        return torch.from_numpy(array.view(np.uint8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(np.ascontiguousarray(array))
