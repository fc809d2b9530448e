"""Cost model: ridge regression of log run time on the log cost estimates and their squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FEWEST = 6
"""Minimum number of trials for the model to rank candidates; with fewer, the static estimate does."""


class CostModel:
    """Predicts log2 seconds from features; ``fit`` trains it anew.

    For rows z of standardized features x and their squares, the weights are ``(Z'Z + penalty I)^-1 Z'y``.
    """

    def __init__(self, penalty: float = 0.1):
        self._penalty = penalty
        self._weights: np.ndarray | None = None
        self._mean = self._scale = np.zeros(0)
        self._offset = 0.0

    @property
    def is_fitted(self) -> bool:
        return self._weights is not None

    def fit(self, features: Sequence[Sequence[float]], seconds: Sequence[float]) -> None:
        """Train on measured candidates; with fewer than FEWEST, the model does not change."""
        if len(features) < FEWEST:
            return
        x, y = np.asarray(features, float), np.log2(np.asarray(seconds, float))
        self._mean, deviation = x.mean(0), x.std(0)
        self._scale = np.where(deviation > 0, deviation, 1.0)
        self._offset = float(y.mean())
        z = self._rows(x)
        self._weights = np.linalg.solve(z.T @ z + self._penalty * np.eye(z.shape[1]), z.T @ (y - self._offset))

    def predict(self, features: Sequence[Sequence[float]]) -> np.ndarray:
        """Predicted log2 seconds of each row of features."""
        assert self._weights is not None
        return self._rows(np.asarray(features, float)) @ self._weights + self._offset

    def _rows(self, x: np.ndarray) -> np.ndarray:
        standard = (x - self._mean) / self._scale
        return np.hstack([standard, standard**2])
