"""From RGB images to what a model's ``image_embed`` takes, as the settings in mlc-chat-config.json say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlc_errors import MLCError
from mlc_runtime.images import import_pillow

RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Pillow's filters, in the order of its numbers, which preprocessor_config.json has."""


@dataclass(frozen=True)
class ImageProcessor:
    """Pads, resizes, crops and normalizes images; None leaves a step out. Sizes in pixels.

    pad_to_square: the colour with which images are made square. resize: (height, width), or the length of the shorter
    edge. resample: one of RESAMPLING. crop: (height, width) of the centre. An element x becomes ``(x * scale - mean) /
    std``, mean and std by channel.
    """

    pad_to_square: tuple[int, ...] | None
    resize: tuple[int, int] | int | None
    resample: str
    crop: tuple[int, int] | None
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @staticmethod
    def of(settings: Mapping[str, Any]) -> ImageProcessor:
        """From the entry ``image_processor`` of mlc-chat-config.json. Raises MLCError for a malformed one."""
        try:
            return _processor(settings)
        except (KeyError, TypeError, ValueError) as e:
            raise MLCError(
                f"image_processor is malformed: {type(e).__name__}: {e}", hint="run gen_config again"
            ) from None

    def pixels(self, image: np.ndarray) -> np.ndarray:
        """An image uint8 [H, W, 3] as float32 [1, 3, height, width]."""
        if self.pad_to_square is not None:
            image = _square(image, self.pad_to_square)
        image = _cropped(self._resized(image), self.crop)
        scaled = (image.astype(np.float64) * self.scale).astype(np.float32)
        normal = (scaled - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(normal.transpose(2, 0, 1)[None])

    def _resized(self, image: np.ndarray) -> np.ndarray:
        before = image.shape[:2]
        if self.resize is None:
            return image
        height, width = _with_shorter_edge(before, self.resize) if isinstance(self.resize, int) else self.resize
        if (height, width) == before:
            return image
        image_module, _ = import_pillow()
        return np.asarray(image_module.fromarray(image).resize((width, height), RESAMPLING.index(self.resample)))


def _processor(settings: Mapping[str, Any]) -> ImageProcessor:
    resize, crop, pad = (settings[key] for key in ("resize", "crop", "pad_to_square"))
    if settings["resample"] not in RESAMPLING:
        raise ValueError(f"resample is {settings['resample']!r}; expected one of {', '.join(RESAMPLING)}")
    return ImageProcessor(
        pad_to_square=None if pad is None else tuple(int(v) for v in pad),
        resize=resize if resize is None or isinstance(resize, int) else _size(resize),
        resample=settings["resample"],
        crop=None if crop is None else _size(crop),
        scale=float(settings["scale"]),
        mean=tuple(float(v) for v in settings["mean"]),
        std=tuple(float(v) for v in settings["std"]),
    )


def _size(value: Any) -> tuple[int, int]:
    height, width = value
    return int(height), int(width)


def _with_shorter_edge(size: tuple[int, ...], length: int) -> tuple[int, int]:
    """Height and width in the same proportion, the shorter one being ``length``."""
    short = min(size)
    height, width = (length if edge == short else int(length * edge / short) for edge in size)
    return height, width


def _square(image: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    """The image in the middle of a square."""
    height, width, channels = image.shape
    side = max(height, width)
    square = np.empty((side, side, channels), np.uint8)
    square[...] = np.array(colour, np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = image
    return square


def _cropped(image: np.ndarray, crop: tuple[int, int] | None) -> np.ndarray:
    """The centre of the image."""
    if crop is None:
        return image
    (height, width), (rows, columns) = image.shape[:2], crop
    if rows > height or columns > width:
        raise MLCError(f"cannot crop {rows} x {columns} pixels of an image that is resized to {height} x {width}")
    top, left = (height - rows) // 2, (width - columns) // 2
    return image[top : top + rows, left : left + columns]
