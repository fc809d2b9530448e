"""GPTQ: the error of each column is made up for by the columns after it (Frantar et al. 2022, arXiv:2210.17323).

With H = X^T X of a layer's inputs and U the upper Cholesky factor of its inverse, H^-1 = U^T U, column k of a weight
is rounded to q_k and every later column j changes by -(w_k - q_k) / U[k, k] * U[k, j]. Scales of a group are searched
when its first column is reached, for the weights as they are then; an error in column k costs 1 / U[k, k]^2. Columns
behind a span of some groups change once, by a product with the errors of all of them. Rows are independent.
"""

from __future__ import annotations

import numpy as np

from quantization.group import pack, searched_scales
from quantization.scale_search import middles
from quantization.schemes import Scheme

DAMPING = 0.01  # of the mean of the diagonal, added to it (the paper's section 3.3)
SPAN = 4  # groups
ROWS = 4096  # of a weight that are in memory in float32
INVERTED = 256  # sizes of triangles that are inverted as they are


def encode(weight: np.ndarray, hessian: np.ndarray, scheme: Scheme) -> dict[str, np.ndarray]:
    """Codes q_weight uint32 [N, words] and scales q_scale float16 [N, groups] of a weight [N, K], NK.

    hessian: X^T X [K, K] of inputs X [tokens, K], float; a positive factor does not matter. scheme: with searched
    scales. Time is that of 2 N K^2 + K^3 operations, memory that of a few K x K matrices in float64. Raises ValueError
    for weights that float16 cannot hold.
    """
    factor = inverse_factor(hessian)
    costs = (1 / np.square(np.diagonal(factor))).astype(np.float32)
    outputs, inputs = weight.shape
    codes = np.zeros((outputs, scheme.groups(inputs) * scheme.group), np.uint8)
    scales = np.empty((outputs, scheme.groups(inputs)), np.float16)
    for start in range(0, outputs, ROWS):
        rows = slice(start, start + ROWS)
        codes[rows, :inputs], scales[rows] = _encode_rows(_columns(weight[rows]), factor, costs, scheme)
    return {"q_weight": pack(codes, scheme), "q_scale": scales}


def inverse_factor(hessian: np.ndarray) -> np.ndarray:
    """U, upper triangular, of H^-1 = U^T U for the damped H; float32 [K, K]. Inputs that are always 0 cost nothing."""
    damped = hessian.astype(np.float64)
    diagonal = np.einsum("ii->i", damped)
    diagonal += DAMPING * diagonal.mean() or 1.0
    # H = L L^T in reversed order is H = R R^T with R upper triangular, and U = R^-1.
    reversed_factor = np.linalg.cholesky(damped[::-1, ::-1])
    return np.ascontiguousarray(_inverse_of_lower(reversed_factor)[::-1, ::-1], np.float32)


def _inverse_of_lower(lower: np.ndarray) -> np.ndarray:
    """Of a lower triangular matrix, by halves: a third of the operations of a general inverse."""
    size = len(lower)
    if size <= INVERTED:
        return np.tril(np.linalg.inv(lower))
    half = size // 2
    inverse = np.zeros_like(lower)
    inverse[:half, :half] = _inverse_of_lower(lower[:half, :half])
    inverse[half:, half:] = _inverse_of_lower(lower[half:, half:])
    inverse[half:, :half] = -inverse[half:, half:] @ (lower[half:, :half] @ inverse[:half, :half])
    return inverse


def _columns(weight: np.ndarray) -> np.ndarray:
    """The weights as float16 holds them, float32 [K, N]."""
    with np.errstate(over="ignore"):
        halves = weight.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ValueError("a weight that float16 cannot hold")
    return np.ascontiguousarray(halves.T, np.float32)


def _encode_rows(
    remaining: np.ndarray, factor: np.ndarray, costs: np.ndarray, scheme: Scheme
) -> tuple[np.ndarray, np.ndarray]:
    """Codes uint8 [N, K] and scales float16 [N, groups] of weights [K, N], which are overwritten."""
    inputs, outputs = remaining.shape
    codes, scales = np.empty(remaining.shape, np.uint8), np.empty((outputs, scheme.groups(inputs)), np.float16)
    for first in range(0, inputs, SPAN * scheme.group):
        last = min(first + SPAN * scheme.group, inputs)
        errors = np.empty((last - first, outputs), np.float32)
        for start in range(first, last, scheme.group):
            stop = min(start + scheme.group, inputs)
            found = scales[:, start // scheme.group] = _scales(remaining[start:stop], costs[start:stop], scheme)
            own = errors[start - first : stop - first]
            codes[start:stop] = _round_columns(
                remaining[start:stop], found, factor[start:stop, start:stop], own, scheme
            )
            remaining[stop:last] -= factor[start:stop, stop:last].T @ own
        remaining[last:] -= factor[first:last, last:].T @ errors
    return codes.T, scales


def _scales(columns: np.ndarray, costs: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Of the group, float16 [N]."""
    padded = np.zeros((columns.shape[1], scheme.group), np.float32)
    padded[:, : len(columns)] = columns.T
    importance = np.zeros((1, scheme.group), np.float32)
    importance[0, : len(costs)] = costs
    return searched_scales(padded, scheme, importance)


def _round_columns(
    columns: np.ndarray, scales: np.ndarray, factor: np.ndarray, errors: np.ndarray, scheme: Scheme
) -> np.ndarray:
    """Codes of the columns of a group, uint8; fills in their errors over the diagonal of U. Both [columns, N]."""
    levels, between = scheme.levels.astype(np.float32), middles(scheme)
    wide = scales.astype(np.float32)
    inverse = np.divide(1, wide, out=np.zeros_like(wide), where=wide != 0)
    codes = np.empty(columns.shape, np.uint8)
    for k, column in enumerate(columns):
        codes[k] = np.searchsorted(between, column * inverse)
        errors[k] = (column - levels[codes[k]] * wide) / factor[k, k]
        columns[k + 1 :] -= factor[k, k + 1 :, None] * errors[k]
    return codes
