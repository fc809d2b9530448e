"""Inputs of ``image_embed``, and the preprocessing steps that all image processors share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mlc_runtime.images import import_pillow

RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Pillow's filters in the order of the numbers that preprocessor_config.json uses."""


@dataclass(frozen=True)
class View:
    """The inputs of one call of ``image_embed``. grid: rows and columns of tokens, if they depend on the image."""

    inputs: Mapping[str, np.ndarray]
    grid: tuple[int, int] | None = None

    @staticmethod
    def of_pixels(pixels: np.ndarray) -> View:
        """pixels: float32 [1, C, height, width]"""
        return View({"pixel_values": pixels})


@dataclass(frozen=True)
class Views:
    """The model's views of an image: tiles row by row, then the whole image."""

    views: Sequence[View]
    rows: int = 0
    columns: int = 0


class ImageProcessor(Protocol):
    def views(self, image: np.ndarray) -> Views:
        """The views of an image uint8 [H, W, 3]."""


@dataclass(frozen=True)
class Normalization:
    """Normalizes pixels: ``(x * scale - mean) / std``, with mean and std per channel."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @staticmethod
    def of(settings: Mapping[str, Any]) -> Normalization:
        mean, std = (tuple(float(v) for v in settings[key]) for key in ("mean", "std"))
        return Normalization(float(settings["scale"]), mean, std)

    def pixels(self, image: np.ndarray) -> np.ndarray:
        scaled = (image.astype(np.float64) * self.scale).astype(np.float32)
        normal = (scaled - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(normal.transpose(2, 0, 1)[None])


def resized(image: np.ndarray, size: tuple[int, int], resample: str) -> np.ndarray:
    """Resize an image to (height, width) with one of the filters in RESAMPLING."""
    if image.shape[:2] == size:
        return image
    image_module, _ = import_pillow()
    return np.asarray(image_module.fromarray(image).resize(size[::-1], RESAMPLING.index(resample)))


def resampling(settings: Mapping[str, Any]) -> str:
    """The filter named in the settings. Raises ValueError for one that is not in RESAMPLING."""
    name = settings["resample"]
    if name not in RESAMPLING:
        raise ValueError(f"resample is {name!r}; expected one of {', '.join(RESAMPLING)}")
    return str(name)
