"""GPTQ: the rounding error of each column is compensated in later columns (Frantar et al. 2022, arXiv:2210.17323).

With H = X^T X of a layer's inputs and U the upper Cholesky factor of its inverse, H^-1 = U^T U, column k of a weight
is rounded to q_k and every later column j changes by -(w_k - q_k) / U[k, k] * U[k, j]. Columns are processed by
descending mean square ("act order" in the authors' code), so that the most columns remain to compensate large errors.
Scales are chosen before, by the weighted search. Columns after a part of PART columns are updated once, with the
errors of all columns of the part. Rows are independent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from quantization import group, kernels
from quantization.kernels import PART
from quantization.scale_search import middles
from quantization.schemes import Scheme

DAMPING = 0.2
"""Share of the mean diagonal that is added to the diagonal, for inputs of other texts (the paper: 0.01; see
``docs/performance.md``, "Calibration")."""
ROWS = 4096  # rows of a weight processed at a time, in float32
INVERTED = 256  # triangular matrices up to this size are inverted directly
Rounding = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From weights float32 [N, K], columns in the order of the factor, and scales float32 [N, groups] to codes [N, K]."""


def encode(weight: np.ndarray, hessian: np.ndarray, scheme: Scheme) -> dict[str, np.ndarray]:
    """Quantize a weight [N, K] to codes q_weight uint32 [N, words] and scales q_scale [N, groups].

    hessian: X^T X [K, K] of inputs X [tokens, K], up to a positive factor. scheme: a scheme with searched
    scales. Takes 2 N K^2 + K^3 operations and memory for a few K x K matrices in float64. Raises ValueError
    for weights that overflow float16.
    """
    inputs = weight.shape[1]
    squares = np.array(np.diagonal(hessian), np.float32)
    order = np.argsort(-squares, kind="stable")
    factor = inverse_factor(hessian[np.ix_(order, order)])
    codes = np.zeros((len(weight), scheme.groups(inputs) * scheme.group), np.uint8)
    scales = np.empty((len(weight), scheme.groups(inputs)), np.float16)
    rounding = _rounding(scheme, factor, order // scheme.group, weight.size >= group.COMPILED_ELEMENTS)
    for start in range(0, len(weight), ROWS):
        rows = slice(start, start + ROWS)
        part = weight[rows].astype(np.float32, copy=False)
        scales[rows] = _scales(part, squares, scheme)
        stored = part.astype(np.float16).astype(np.float32)
        codes[rows, order] = rounding(stored[:, order], scales[rows].astype(np.float32))
    return {"q_weight": group.pack(codes, scheme), "q_scale": group.stored_scales(scales, scheme)}


def _rounding(scheme: Scheme, factor: np.ndarray, group_of: np.ndarray, compiled: bool) -> Rounding:
    """Rounding with error feedback. group_of: the group of each column. compiled: by a kernel where the CPU has one."""
    kernel = kernels.feedback_kernel(scheme) if compiled else None
    if kernel is None:
        return lambda weights, scales: _rounded(weights.T.copy(), scales[:, group_of].T, factor, scheme).T
    of_columns, transposed = group_of.astype(np.int32), np.ascontiguousarray(factor.T)
    levels, between = scheme.levels.astype(np.float32), middles(scheme)

    def rounded(weights: np.ndarray, scales: np.ndarray) -> np.ndarray:
        tiles, of_groups = _in_tiles(weights), _in_tiles(scales)
        codes = np.empty(tiles.shape, np.uint8)
        kernel(tiles, of_groups, of_columns, transposed, levels, between, codes, *tiles.shape[:2], scales.shape[1])
        return codes.transpose(0, 2, 1).reshape(-1, weights.shape[1])[: len(weights)]

    return rounded


def _in_tiles(rows: np.ndarray) -> np.ndarray:
    """Rows [N, K] in tiles [N / ROW_LANES, K, ROW_LANES]; rows of zeros are added to the last tile."""
    count = -(-len(rows) // kernels.ROW_LANES)
    padded = np.zeros((count * kernels.ROW_LANES, rows.shape[1]), np.float32)
    padded[: len(rows)] = rows
    return np.ascontiguousarray(padded.reshape(count, kernels.ROW_LANES, -1).transpose(0, 2, 1))


def _scales(rows: np.ndarray, squares: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Scales of the weighted search, float16 [N, groups]."""
    made = group.encode_rows(lambda: [rows], rows.shape, scheme, "NK", squares)["q_scale"]
    return group.scale_values(made, scheme).astype(np.float16)


def inverse_factor(hessian: np.ndarray) -> np.ndarray:
    """The upper triangular U with H^-1 = U^T U for the damped H, float32 [K, K]. Errors of all-zero inputs are free."""
    damped = hessian.astype(np.float64)
    diagonal = np.einsum("ii->i", damped)
    diagonal += DAMPING * diagonal.mean() or 1.0
    # Cholesky in reversed order gives H = R R^T with R upper triangular, so U = R^-1.
    reversed_factor = np.linalg.cholesky(damped[::-1, ::-1])
    return np.ascontiguousarray(_inverse_of_lower(reversed_factor)[::-1, ::-1], np.float32)


def _inverse_of_lower(lower: np.ndarray) -> np.ndarray:
    """Invert a lower triangular matrix by recursive halving, with a third of the operations of a general inverse."""
    size = len(lower)
    if size <= INVERTED:
        return np.tril(np.linalg.inv(lower))
    half = size // 2
    inverse = np.zeros_like(lower)
    inverse[:half, :half] = _inverse_of_lower(lower[:half, :half])
    inverse[half:, half:] = _inverse_of_lower(lower[half:, half:])
    inverse[half:, :half] = -inverse[half:, half:] @ (lower[half:, :half] @ inverse[:half, :half])
    return inverse


def _rounded(columns: np.ndarray, scales: np.ndarray, factor: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Round weights with error feedback to codes uint8; columns, scales and codes are [K, N]. Overwrites columns."""
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    levels, between = scheme.levels.astype(np.float32), middles(scheme)
    codes = np.empty(columns.shape, np.uint8)
    for start in range(0, len(columns), PART):
        stop = min(start + PART, len(columns))
        errors = np.empty((stop - start, columns.shape[1]), np.float32)
        for k in range(start, stop):
            codes[k] = np.searchsorted(between, columns[k] * inverse[k])
            error = errors[k - start] = (columns[k] - levels[codes[k]] * scales[k]) / factor[k, k]
            columns[k + 1 : stop] -= factor[k, k + 1 : stop, None] * error
        columns[stop:] -= factor[start:stop, stop:].T @ errors
    return codes
