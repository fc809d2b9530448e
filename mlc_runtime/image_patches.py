"""Images of any size as patches, several of which are one token, with the place of each."""

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
    """The number of tokens of an image is between ``least`` and ``most``, in pixels (Qwen2-VL, section 2.1).

    shortest: tokens each way, before the image is made larger.
    """

    least: int
    most: int
    shortest: int = 0

    def grid(self, height: int, width: int, unit: int) -> tuple[int, int]:
        """Rows and columns of tokens, in about the same proportion; unit: a token's height and width in pixels."""
        rows, columns = (max(self.shortest, round(edge / unit)) for edge in (height, width))
        if rows * columns * unit**2 > self.most:
            return _fitting(height, width, unit, self.most)
        if rows * columns * unit**2 < self.least:
            factor = math.sqrt(self.least / (height * width))
            rows, columns = (math.ceil(edge * factor / unit) for edge in (height, width))
        return rows, columns


@dataclass(frozen=True)
class EdgeBound:
    """An image's longer edge is at most ``edge`` pixels, and its tokens have at most ``most`` pixels (Pixtral)."""

    edge: int
    most: int

    def grid(self, height: int, width: int, unit: int) -> tuple[int, int]:
        """As of ``AreaBounds``, rounded up."""
        ratio = max(1.0, height / self.edge, width / self.edge)
        height, width = (max(1, math.floor(edge / ratio)) for edge in (height, width))
        rows, columns = -(-height // unit), -(-width // unit)
        is_large = rows * columns * unit**2 > self.most
        return _fitting(height, width, unit, self.most) if is_large else (rows, columns)


@dataclass(frozen=True)
class FilledArea:
    """An image has as many tokens as fit in ``most`` pixels, whatever its size (Gemma 4)."""

    most: int

    def grid(self, height: int, width: int, unit: int) -> tuple[int, int]:
        """As of ``AreaBounds``, rounded down; of an image that is too narrow, one row or column."""
        scale = math.sqrt(self.most / (height * width))
        rows, columns = (math.floor(scale * edge / unit) for edge in (height, width))
        longest = self.most // unit**2
        if not rows:
            return 1, min(width // height, longest)
        return (rows, columns) if columns else (min(height // width, longest), 1)


@dataclass(frozen=True)
class PatchedImages:
    """Divides images of any size into patches (Qwen2-VL, section 2.1). Sizes in pixels.

    patch: height and width. merge: squares of this many patches each way are one token. frames: how often the image is
    repeated in a patch. bounds: of a resized image.
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
        """The image with the size that its bounds allow."""
        return self.patches(resized(image, self._size(image), self.resample))

    def patches(self, image: np.ndarray) -> View:
        """The patches of an image whose height and width are those of some tokens."""
        p, m = self.patch, self.merge
        pixels = self.normalization.pixels(image)[0]
        channels, height, width = pixels.shape
        rows, columns = height // (p * m), width // (p * m)
        squares = pixels.reshape(channels, rows, m, p, columns, m, p).transpose(1, 4, 2, 5, 0, 3, 6)
        repeated = np.repeat(squares.reshape(rows * columns, m * m, channels, 1, p * p), self.frames, axis=3)
        patches = np.ascontiguousarray(repeated.reshape(rows * columns, m * m, -1))
        return View({"pixel_values": patches, "patch_pos": _patch_positions(rows, columns, m)}, (rows, columns))

    def _size(self, image: np.ndarray) -> tuple[int, int]:
        """Height and width as multiples of a token's, in about the same proportion, of an allowed number of pixels."""
        (height, width), unit = image.shape[:2], self.patch * self.merge
        if max(height, width) > MAX_ASPECT * min(height, width):
            raise UsageError(
                f"an image is {width} x {height} pixels; expected at most {MAX_ASPECT} times as long as wide"
            )
        rows, columns = self.bounds.grid(height, width, unit)
        return rows * unit, columns * unit


@dataclass(frozen=True)
class TiledPatchedImages:
    """Shows large images in tiles, as many each way as fits their proportions best, and then as a whole (InternVL 1.5).

    whole: makes patches, of the whole image and of tiles. tile: height and width, in pixels, those of some tokens.
    tiles: the least and the greatest number of an image. largest: pixels of an image that is shown as a whole only;
    None where all are.
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
        """Whether it has more pixels than ``largest``, as a multiple of a token's size."""
        patch, unit = self.whole.patch, self.whole.patch * self.whole.merge
        height, width = (max(patch, round(edge / unit) * unit) for edge in (height, width))
        return self.largest is not None and height * width > self.largest

    def _layout(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tiles of about the image's proportions.

        Of those that fit equally well, the one with the most tiles of which the image has half the pixels.
        """
        least, most = self.tiles
        sizes = [(r, c) for r in range(1, most + 1) for c in range(1, most // r + 1) if r * c >= least]
        errors = {(r, c): abs(width / height - c / r) for r, c in sizes}
        best = sorted((s for s in sizes if errors[s] == min(errors.values())), key=lambda s: s[0] * s[1])
        filled = [(r, c) for r, c in best if height * width > 0.5 * r * c * self.tile**2]
        return (filled or best[:1])[-1]


def _bounds(settings: Mapping[str, Any], most: int, shortest: int = 0) -> AreaBounds | EdgeBound | FilledArea:
    """most: pixels of an image. shortest: see ``AreaBounds``."""
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
    """Rows and columns of tokens, in about the same proportion, of at most ``most`` pixels."""
    factor = math.sqrt(height * width / most)
    rows, columns = (max(1, math.floor(edge / factor / unit)) for edge in (height, width))
    return rows, columns


def _patch_positions(rows: int, columns: int, merge: int) -> np.ndarray:
    """The row and column of each patch of each token, int32 [rows * columns, merge * merge, 2]."""
    grid = np.indices((rows * merge, columns * merge), np.int32).reshape(2, rows, merge, columns, merge)
    return np.ascontiguousarray(grid.transpose(1, 3, 2, 4, 0).reshape(rows * columns, merge * merge, 2))
