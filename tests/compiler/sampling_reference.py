"""Reference of the sampling filters, by sorting in float64."""

from __future__ import annotations

import numpy as np


def filtered(p: np.ndarray, top_k: float, top_p: float, min_p: float, typical_p: float) -> np.ndarray:
    """The distribution ``p`` [V] after the filters, not normalized."""
    p = p.astype(np.float64)
    if top_k > 0:
        p = np.where(p >= np.sort(p)[-min(int(top_k), len(p))], p, 0)
    if top_p < 1:
        p = _smallest_set(p, -p, top_p)
    p = np.where(p >= min_p * p.max(), p, 0)
    if typical_p < 1:
        surprise = -np.log(np.where(p > 0, p / p.sum(), 1))
        entropy = (p / p.sum() * surprise).sum()
        p = _smallest_set(p, np.where(p > 0, np.abs(surprise - entropy), np.inf), typical_p)
    return p


def _smallest_set(p: np.ndarray, order_by: np.ndarray, share: float) -> np.ndarray:
    order = np.argsort(order_by, kind="stable")
    count = np.searchsorted(np.cumsum(p[order]), share * p.sum()) + 1
    return np.where(np.isin(np.arange(len(p)), order[:count]), p, 0)
