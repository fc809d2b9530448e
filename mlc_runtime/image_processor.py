"""Image preprocessing: from RGB images to the inputs of ``image_embed``, by the settings in mlc-chat-config.json."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlc_errors import MLCError
from mlc_runtime.bicubic import bicubic
from mlc_runtime.image_patches import PatchedImages, TiledPatchedImages
from mlc_runtime.image_views import ImageProcessor, Normalization, View, Views, resampling, resized

MAX_EDGE = 4096  # pixels of an image before it is split into tiles


def image_processor(settings: Mapping[str, Any], max_tokens: int) -> ImageProcessor:
    """Read the entry ``image_processor`` of mlc-chat-config.json. Raises MLCError if it is malformed.

    max_tokens: maximum per image; if the number of tokens depends on the size, larger images are scaled down.
    """
    try:
        kind = settings["kind"]
        if kind not in _KINDS:
            raise ValueError(f"kind is {kind!r}; expected one of {', '.join(_KINDS)}")
        return _KINDS[kind](settings, max_tokens)
    except (KeyError, TypeError, ValueError) as e:
        message = f"image_processor is malformed: {type(e).__name__}: {e}"
        raise MLCError(message, hint="run gen_config again") from None


@dataclass(frozen=True)
class WholeImages:
    """Pads, resizes and center-crops images; None skips a step. Sizes in pixels.

    pad_to_square: the padding colour. resize: (height, width), or the length of the shorter
    edge. resample: one of RESAMPLING. crop: (height, width) of the center crop.
    """

    pad_to_square: tuple[int, ...] | None
    resize: tuple[int, int] | int | None
    resample: str
    crop: tuple[int, int] | None
    normalization: Normalization

    @staticmethod
    def of(settings: Mapping[str, Any], max_tokens: int) -> WholeImages:
        resize, crop, pad = (settings[key] for key in ("resize", "crop", "pad_to_square"))
        return WholeImages(
            pad_to_square=None if pad is None else tuple(int(v) for v in pad),
            resize=resize if resize is None or isinstance(resize, int) else _size(resize),
            resample=resampling(settings),
            crop=None if crop is None else _size(crop),
            normalization=Normalization.of(settings),
        )

    def views(self, image: np.ndarray) -> Views:
        if self.pad_to_square is not None:
            image = _square(image, self.pad_to_square)
        if self.resize is not None:
            size = self.resize
            image = resized(image, _scaled(image, size) if isinstance(size, int) else size, self.resample)
        return Views([View.of_pixels(self.normalization.pixels(_cropped(image, self.crop)))])


@dataclass(frozen=True)
class TiledImages:
    """Splits images into tiles, followed by the whole image (Idefics3). Sizes in pixels.

    longest_edge: of an image before it is split. tile: edge of the tiles and of the whole image. divided: whether
    images are split at all.
    """

    longest_edge: int
    tile: int
    divided: bool
    resample: str
    normalization: Normalization

    @staticmethod
    def of(settings: Mapping[str, Any], max_tokens: int) -> TiledImages:
        edge, tile = int(settings["longest_edge"]), int(settings["tile"])
        if min(edge, tile) < 1:
            raise ValueError(f"longest_edge is {edge}, tile is {tile}; expected positive numbers")
        return TiledImages(edge, tile, bool(settings["divided"]), resampling(settings), Normalization.of(settings))

    def views(self, image: np.ndarray) -> Views:
        image = resized(image, self._first_size(image), self.resample)
        rows = columns = 0
        if self.divided:
            image = resized(image, self._whole_tiles(image), self.resample)
            rows, columns = (edge // self.tile for edge in image.shape[:2])
        if rows * columns == 1:
            rows = columns = 0
        tiles = [self._tile(image, row, column) for row in range(rows) for column in range(columns)]
        whole = resized(image, (self.tile, self.tile), self.resample)
        return Views([View.of_pixels(self.normalization.pixels(v)) for v in (*tiles, whole)], rows, columns)

    def _first_size(self, image: np.ndarray) -> tuple[int, int]:
        """Resize the longer edge to ``longest_edge``; the other keeps the aspect ratio and is even."""
        height, width = image.shape[:2]
        aspect, edge = width / height, self.longest_edge
        if width >= height:
            height, width = _even(int(edge / aspect)), edge
        else:
            height, width = edge, _even(int(edge * aspect))
        if max(height, width) > MAX_EDGE:
            aspect = width / height
            wide = width >= height
            height, width = (int(MAX_EDGE / aspect), MAX_EDGE) if wide else (MAX_EDGE, int(MAX_EDGE * aspect))
        return max(height, 1), max(width, 1)

    def _whole_tiles(self, image: np.ndarray) -> tuple[int, int]:
        """Height and width as multiples of ``tile``: the longer edge rounded up, then the other by aspect ratio."""
        height, width = image.shape[:2]
        aspect = width / height
        if width >= height:
            width = self._rounded(width)
            return self._rounded(int(width / aspect)), width
        height = self._rounded(height)
        return height, self._rounded(int(height * aspect))

    def _rounded(self, edge: int) -> int:
        return math.ceil(edge / self.tile) * self.tile

    def _tile(self, image: np.ndarray, row: int, column: int) -> np.ndarray:
        top, left = row * self.tile, column * self.tile
        return image[top : top + self.tile, left : left + self.tile]


@dataclass(frozen=True)
class FittedTiledImages:
    """Pads images to the best fitting canvas of tiles; several tiles are followed by the whole image (Llama 4).

    tile: edge of the tiles and of the whole image, in pixels. max_tiles: maximum number of tiles. enlarged: whether
    images are enlarged to fill the canvas; otherwise small images are enlarged to one tile at most.
    """

    tile: int
    max_tiles: int
    enlarged: bool
    resample: str
    normalization: Normalization

    @staticmethod
    def of(settings: Mapping[str, Any], max_tokens: int) -> FittedTiledImages:
        tile, tiles = int(settings["tile"]), int(settings["max_tiles"])
        if min(tile, tiles) < 1:
            raise ValueError(f"tile is {tile}, max_tiles is {tiles}; expected positive numbers")
        enlarged, resample = bool(settings["enlarged"]), resampling(settings)
        return FittedTiledImages(tile, tiles, enlarged, resample, Normalization.of(settings))

    def views(self, image: np.ndarray) -> Views:
        t, (height, width) = self.tile, image.shape[:2]
        rows, columns = self._canvas(height, width)
        limits = rows * t, columns * t
        if not self.enlarged:
            limits = min(max(height, t), limits[0]), min(max(width, t), limits[1])
        fitted = resized(image, _within(height, width, limits), self.resample)
        missing = ((0, rows * t - fitted.shape[0]), (0, columns * t - fitted.shape[1]), (0, 0))
        canvas = np.pad(fitted, missing)
        corners = [(t * row, t * column) for row in range(rows) for column in range(columns)]
        parts = [canvas[top : top + t, left : left + t] for top, left in corners]
        if len(parts) == 1:
            return Views([View.of_pixels(self.normalization.pixels(canvas))])
        parts.append(resized(image, (t, t), self.resample))
        return Views([View.of_pixels(self.normalization.pixels(part)) for part in parts], rows, columns)

    def _canvas(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tiles: the canvas with the smallest scale factor of at least 1 (the largest factor if
        ``enlarged``); if all factors are below 1, the one with the largest. Among equal ones, the smallest canvas."""
        sizes = [(r, c) for r in range(1, self.max_tiles + 1) for c in range(1, self.max_tiles // r + 1)]
        scales = {(r, c): min(r * self.tile / height, c * self.tile / width) for r, c in sizes}
        fitting = [scale for scale in scales.values() if scale >= 1]
        best = (max if self.enlarged or not fitting else min)(fitting or scales.values())
        return min((size for size, scale in scales.items() if scale == best), key=lambda size: size[0] * size[1])


def _within(height: int, width: int, limits: tuple[int, int]) -> tuple[int, int]:
    """The largest height and width within the limits that keep the aspect ratio."""
    rows, columns = limits
    scale_h, scale_w = rows / height, columns / width
    if scale_w < scale_h:
        return max(min(math.floor(height * scale_w), rows), 1), columns
    return rows, max(min(math.floor(width * scale_h), columns), 1)


@dataclass(frozen=True)
class WideTiledImages:
    """Splits every image into tiles by its aspect ratio, followed by the whole image (InternLM-XComposer2-4KHD).

    tile: edge of the tiles and of the whole image, in pixels. max_tiles: maximum number of tiles.
    """

    tile: int
    max_tiles: int
    resample: str
    normalization: Normalization

    @staticmethod
    def of(settings: Mapping[str, Any], max_tokens: int) -> WideTiledImages:
        tile, tiles = int(settings["tile"]), int(settings["max_tiles"])
        if min(tile, tiles) < 1:
            raise ValueError(f"tile is {tile}, max_tiles is {tiles}; expected positive numbers")
        return WideTiledImages(tile, tiles, resampling(settings), Normalization.of(settings))

    def views(self, image: np.ndarray) -> Views:
        is_high = image.shape[0] > image.shape[1]
        wide = self._padded(_turned(image) if is_high else image)
        pixels = self.normalization.pixels(_turned(wide) if is_high else wide)
        t, (rows, columns) = self.tile, (edge // self.tile for edge in pixels.shape[2:])
        corners = [(t * row, t * column) for row in range(rows) for column in range(columns)]
        tiles = [np.ascontiguousarray(pixels[:, :, top : top + t, left : left + t]) for top, left in corners]
        return Views([View.of_pixels(v) for v in (*tiles, bicubic(pixels, (t, t)))], rows, columns)

    def _padded(self, image: np.ndarray) -> np.ndarray:
        """Resize a wide image to a multiple of the tile width, and pad its height to a multiple with white."""
        aspect = image.shape[1] / image.shape[0]
        columns = max(n for n in range(1, self.max_tiles + 1) if n * math.ceil(n / aspect) <= self.max_tiles)
        width = columns * self.tile
        image = resized(image, (max(int(width / aspect), 1), width), self.resample)
        missing = -image.shape[0] % self.tile
        return np.pad(image, ((missing // 2, missing - missing // 2), (0, 0), (0, 0)), constant_values=255)


def _turned(image: np.ndarray) -> np.ndarray:
    """The transposed image."""
    return np.ascontiguousarray(image.transpose(1, 0, 2))


def _even(edge: int) -> int:
    return max(edge + edge % 2, 1)


def _scaled(image: np.ndarray, length: int) -> tuple[int, int]:
    """Height and width with the same aspect ratio and a shorter edge of ``length``."""
    short = min(image.shape[:2])
    height, width = (length if edge == short else int(length * edge / short) for edge in image.shape[:2])
    return height, width


def _size(value: Any) -> tuple[int, int]:
    height, width = value
    return int(height), int(width)


def _square(image: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    """The image centered in a square of the padding colour."""
    height, width, channels = image.shape
    side = max(height, width)
    square = np.empty((side, side, channels), np.uint8)
    square[...] = np.array(colour, np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = image
    return square


def _cropped(image: np.ndarray, crop: tuple[int, int] | None) -> np.ndarray:
    """The center crop of the image; the image itself if ``crop`` is None."""
    if crop is None:
        return image
    (height, width), (rows, columns) = image.shape[:2], crop
    if rows > height or columns > width:
        raise MLCError(f"cannot crop {rows} x {columns} pixels of an image that is resized to {height} x {width}")
    top, left = (height - rows) // 2, (width - columns) // 2
    return image[top : top + rows, left : left + columns]


_KINDS: Mapping[str, Callable[[Mapping[str, Any], int], ImageProcessor]] = {
    "whole": WholeImages.of,
    "tiles": TiledImages.of,
    "wide_tiles": WideTiledImages.of,
    "fitted_tiles": FittedTiledImages.of,
    "patches": PatchedImages.of,
    "tiled_patches": TiledPatchedImages.of,
}
