"""Bicubic interpolation as in torch.nn.functional.interpolate; Pillow widens the kernel when it scales down."""

from __future__ import annotations

import numpy as np

SHARPNESS = -0.75  # the coefficient a of Keys 1981, "Cubic convolution interpolation for digital image processing"


def bicubic(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize float32 [..., H, W] to [..., height, width] from 4 x 4 neighbours; align_corners=False, edges repeated."""
    rows, columns = (_weights(old, new) for old, new in zip(image.shape[-2:], size, strict=True))
    return (rows @ image.astype(np.float64) @ columns.T).astype(np.float32)


def _weights(old: int, new: int) -> np.ndarray:
    """The interpolation matrix of one axis, float64 [new, old]."""
    places = (np.arange(new) + 0.5) * old / new - 0.5
    first = np.floor(places).astype(np.int64) - 1
    result = np.zeros((new, old))
    for tap in range(4):
        sources = np.clip(first + tap, 0, old - 1)
        np.add.at(result, (np.arange(new), sources), _kernel(np.abs(places - first - tap)))
    return result


def _kernel(distance: np.ndarray) -> np.ndarray:
    """The weight of an element at a distance of 0 to 2 (Keys 1981, equation 4)."""
    a, x = SHARPNESS, distance
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, far)
