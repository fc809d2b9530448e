"""Split images of any size into patches with their positions; several patches form one token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.image_views import Normalization, View, Views, resampling, resized

MAX_ASPECT = 200


@dataclass(frozen=True)
class AreaBounds:
    """Bounds on the area of a resized image, ``least`` to ``most`` pixels (Qwen2-VL, section 2.1).

    shortest: the minimum number of tokens per edge, before an image below ``least`` is enlarged.
    """

    least: int
    most: int
    shortest: int = 0

    def grid(self, height: int, width: int, unit: int) -> tuple[int, int]:
        """Rows and columns of tokens with about the image's aspect ratio; unit: a token's edge in pixels."""
        rows, columns = (max(self.shortest, round(edge / unit)) for edge in (height, width))
        if rows * columns * unit**2 > self.most:
            return _fitting(height, width, unit, self.most)
        if rows * columns * unit**2 < self.least:
            factor = math.sqrt(self.least / (height * width))
            rows, columns = (math.ceil(edge * factor / unit) for edge in (height, width))
        return rows, columns


@dataclass(frozen=True)
class EdgeBound:
    """Bounds on a resized image: its longer edge at most ``edge`` pixels, its area at most ``most`` (Pixtral)."""

    edge: int
    most: int

    def grid(self, height: int, width: int, unit: int) -> tuple[int, int]:
        """See ``AreaBounds.grid``; rounded up."""
        ratio = max(1.0, height / self.edge, width / self.edge)
        height, width = (max(1, math.floor(edge / ratio)) for edge in (height, width))
        rows, columns = -(-height // unit), -(-width // unit)
        is_large = rows * columns * unit**2 > self.most
        return _fitting(height, width, unit, self.most) if is_large else (rows, columns)


@dataclass(frozen=True)
class FilledArea:
    """Images of any size are resized to as many tokens as fit in ``most`` pixels (Gemma 4)."""

    most: int

    def grid(self, height: int, width: int, unit: int) -> tuple[int, int]:
        """See ``AreaBounds.grid``; rounded down, with at least one row and one column."""
        scale = math.sqrt(self.most / (height * width))
        rows, columns = (math.floor(scale * edge / unit) for edge in (height, width))
        longest = self.most // unit**2
        if not rows:
            return 1, min(width // height, longest)
        return (rows, columns) if columns else (min(height // width, longest), 1)


@dataclass(frozen=True)
class PatchedImages:
    """Splits images of any size into patches (Qwen2-VL, section 2.1). Sizes in pixels.

    patch: edge of a patch. merge: a token is merge x merge patches. frames: how often a patch repeats the image, for
    models of videos. bounds: bounds on the resized image.
    """

    patch: int
    merge: int
    frames: int
    bounds: AreaBounds | EdgeBound | FilledArea
    resample: str
    normalization: Normalization

    @staticmethod
    def of(settings: Mapping[str, Any], max_tokens: int) -> PatchedImages:
        patch, merge, frames = (int(settings[key]) for key in ("patch", "merge", "frames"))
        if min(patch, merge, frames) < 1:
            raise ValueError(f"patch, merge, frames are {patch}, {merge}, {frames}; expected positive numbers")
        bounds = _bounds(settings, max_tokens * (patch * merge) ** 2)
        return PatchedImages(patch, merge, frames, bounds, resampling(settings), Normalization.of(settings))

    def views(self, image: np.ndarray) -> Views:
        return Views([self.whole(image)])

    def whole(self, image: np.ndarray) -> View:
        """The patches of the image, resized within ``bounds``."""
        return self.patches(resized(image, self._size(image), self.resample))

    def patches(self, image: np.ndarray) -> View:
        """The patches of an image whose height and width are multiples of a token's."""
        p, m = self.patch, self.merge
        pixels = self.normalization.pixels(image)[0]
        channels, height, width = pixels.shape
        rows, columns = height // (p * m), width // (p * m)
        squares = pixels.reshape(channels, rows, m, p, columns, m, p).transpose(1, 4, 2, 5, 0, 3, 6)
        repeated = np.repeat(squares.reshape(rows * columns, m * m, channels, 1, p * p), self.frames, axis=3)
        patches = np.ascontiguousarray(repeated.reshape(rows * columns, m * m, -1))
        return View({"pixel_values": patches, "patch_pos": _patch_positions(rows, columns, m)}, (rows, columns))

    def _size(self, image: np.ndarray) -> tuple[int, int]:
        """Height and width within ``bounds``, multiples of a token's edge, with about the same aspect ratio."""
        (height, width), unit = image.shape[:2], self.patch * self.merge
        if max(height, width) > MAX_ASPECT * min(height, width):
            raise UsageError(
                f"an image is {width} x {height} pixels; expected at most {MAX_ASPECT} times as long as wide"
            )
        rows, columns = self.bounds.grid(height, width, unit)
        return rows * unit, columns * unit


@dataclass(frozen=True)
class TiledPatchedImages:
    """Splits large images into a grid of tiles of the closest aspect ratio, followed by the whole image (InternVL 1.5).

    whole: splits the whole image and the tiles into patches. tile: edge in pixels, a multiple of a token's.
    tiles: minimum and maximum number of tiles. largest: images of up to this many pixels are not tiled;
    None: no image is.
    """

    whole: PatchedImages
    tile: int
    tiles: tuple[int, int]
    largest: float | None

    @staticmethod
    def of(settings: Mapping[str, Any], max_tokens: int) -> TiledPatchedImages:
        whole = PatchedImages.of(settings, max_tokens)
        unit = whole.patch * whole.merge
        tile, (least, most) = int(settings["tile"]), (int(n) for n in settings["tiles"])
        if tile < 1 or tile % unit or tile**2 > max_tokens * unit**2:
            raise ValueError(f"tile is {tile}; expected a multiple of {unit} of at most {max_tokens} tokens")
        if not 1 < least <= most:
            raise ValueError(f"tiles are {least} to {most}; expected at least 2, and not fewer")
        whole = replace(whole, bounds=_bounds(settings, max_tokens * unit**2, shortest=1))
        largest = settings["largest"]
        return TiledPatchedImages(whole, tile, (least, most), None if largest is None else float(largest))

    def views(self, image: np.ndarray) -> Views:
        height, width = image.shape[:2]
        whole, t = self.whole.whole(image), self.tile
        if not self._is_large(height, width):
            return Views([whole])
        rows, columns = self._layout(height, width)
        canvas = resized(image, (rows * t, columns * t), self.whole.resample)
        corners = [(t * row, t * column) for row in range(rows) for column in range(columns)]
        tiles = [self.whole.patches(canvas[top : top + t, left : left + t]) for top, left in corners]
        return Views([*tiles, whole], rows, columns)

    def _is_large(self, height: int, width: int) -> bool:
        """Whether the image, rounded to multiples of a token's size, has more pixels than ``largest``."""
        patch, unit = self.whole.patch, self.whole.patch * self.whole.merge
        height, width = (max(patch, round(edge / unit) * unit) for edge in (height, width))
        return self.largest is not None and height * width > self.largest

    def _layout(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tiles with the aspect ratio closest to the image's.

        Among equally close grids, the largest of which the image has more than half the pixels, else the smallest.
        """
        least, most = self.tiles
        sizes = [(r, c) for r in range(1, most + 1) for c in range(1, most // r + 1) if r * c >= least]
        errors = {(r, c): abs(width / height - c / r) for r, c in sizes}
        best = sorted((s for s in sizes if errors[s] == min(errors.values())), key=lambda s: s[0] * s[1])
        filled = [(r, c) for r, c in best if height * width > 0.5 * r * c * self.tile**2]
        return (filled or best[:1])[-1]


def _bounds(settings: Mapping[str, Any], most: int, shortest: int = 0) -> AreaBounds | EdgeBound | FilledArea:
    """The bounds in ``settings``. most: maximum pixels of an image. shortest: see ``AreaBounds``."""
    if "filled_pixels" in settings:
        return FilledArea(min(int(settings["filled_pixels"]), most))
    if "longest_edge" in settings:
        edge = int(settings["longest_edge"])
        if edge < 1:
            raise ValueError(f"longest_edge is {edge}; expected a positive number")
        return EdgeBound(edge, most)
    most = min(int(settings["max_pixels"]), most)
    return AreaBounds(min(int(settings["min_pixels"]), most), most, shortest)


def _fitting(height: int, width: int, unit: int, most: int) -> tuple[int, int]:
    """Rows and columns of tokens with about the image's aspect ratio and at most ``most`` pixels."""
    factor = math.sqrt(height * width / most)
    rows, columns = (max(1, math.floor(edge / factor / unit)) for edge in (height, width))
    return rows, columns


def _patch_positions(rows: int, columns: int, merge: int) -> np.ndarray:
    """The row and column of each patch of each token, int32 [rows * columns, merge * merge, 2]."""
    grid = np.indices((rows * merge, columns * merge), np.int32).reshape(2, rows, merge, columns, merge)
    return np.ascontiguousarray(grid.transpose(1, 3, 2, 4, 0).reshape(rows * columns, merge * merge, 2))
