"""GPTQ: the error of each column is made up for by the columns after it (Frantar et al. 2022, arXiv:2210.17323).

With H = X^T X of a layer's inputs and U the upper Cholesky factor of its inverse, H^-1 = U^T U, column k of a weight
is rounded to q_k and every later column j changes by -(w_k - q_k) / U[k, k] * U[k, j]. Scales of a group are searched
when its first column is reached, for the weights as they are then; an error in column k costs 1 / U[k, k]^2.
"""

from __future__ import annotations

import numpy as np

from quantization.group import pack, searched_scales
from quantization.scale_search import middles
from quantization.schemes import Scheme

DAMPING = 0.01  # of the mean of the diagonal, added to it (the paper's section 3.3)


def encode(weight: np.ndarray, hessian: np.ndarray, scheme: Scheme) -> dict[str, np.ndarray]:
    """Codes q_weight uint32 [N, words] and scales q_scale float16 [N, groups] of a weight [N, K], NK.

    hessian: X^T X [K, K] of inputs X [tokens, K], float; a positive factor does not matter. scheme: with searched
    scales. Time is that of 2 N K^2 operations and of an inversion, memory that of two K x K matrices in float64. Raises
    ValueError for weights that float16 cannot hold.
    """
    with np.errstate(over="ignore"):
        remaining = weight.astype(np.float16).astype(np.float32)
    if not np.isfinite(remaining).all():
        raise ValueError("a weight that float16 cannot hold")
    outputs, inputs = remaining.shape
    factor = inverse_factor(hessian)
    costs = (1 / np.square(np.diagonal(factor))).astype(np.float32)
    groups = scheme.groups(inputs)
    codes = np.zeros((outputs, groups * scheme.group), np.uint8)
    scales = np.empty((outputs, groups), np.float16)
    for group in range(groups):
        start, stop = group * scheme.group, min((group + 1) * scheme.group, inputs)
        block, rows = remaining[:, start:stop], factor[start:stop]
        scales[:, group] = _scales(block, costs[start:stop], scheme)
        codes[:, start:stop], errors = _round_columns(block, scales[:, group], rows[:, start:stop], scheme)
        remaining[:, stop:] -= errors @ rows[:, stop:]
    return {"q_weight": pack(codes, scheme), "q_scale": scales}


def inverse_factor(hessian: np.ndarray) -> np.ndarray:
    """U, upper triangular, of H^-1 = U^T U for the damped H; float32 [K, K]. Inputs that are always 0 cost nothing."""
    damped = hessian.astype(np.float64)
    diagonal = np.einsum("ii->i", damped)
    diagonal += DAMPING * diagonal.mean() or 1.0
    # H = L L^T in reversed order is H = R R^T with R upper triangular, and U = R^-1.
    reversed_factor = np.linalg.cholesky(damped[::-1, ::-1])
    return np.triu(np.linalg.inv(reversed_factor)[::-1, ::-1]).astype(np.float32)


def _scales(block: np.ndarray, costs: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Of the group, float16 [N]."""
    padded = np.zeros((len(block), scheme.group), np.float32)
    padded[:, : block.shape[1]] = block
    importance = np.zeros((1, scheme.group), np.float32)
    importance[0, : len(costs)] = costs
    return searched_scales(padded, scheme, importance)


def _round_columns(
    block: np.ndarray, scales: np.ndarray, factor: np.ndarray, scheme: Scheme
) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the columns of a group, uint8, and their errors over the diagonal of U, float32; both [N, columns]."""
    levels, between = scheme.levels.astype(np.float32), middles(scheme)
    wide = scales.astype(np.float32)
    inverse = np.divide(1, wide, out=np.zeros_like(wide), where=wide != 0)
    codes, errors = np.empty(block.shape, np.uint8), np.empty(block.shape, np.float32)
    for k in range(block.shape[1]):
        codes[:, k] = np.searchsorted(between, block[:, k] * inverse)
        errors[:, k] = (block[:, k] - levels[codes[:, k]] * wide) / factor[k, k]
        block[:, k + 1 :] -= errors[:, k, None] * factor[k, k + 1 :]
    return codes, errors
