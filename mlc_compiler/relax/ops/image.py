"""Operators on images."""

from __future__ import annotations

from ...ir.expr import INDEX_DTYPE, IntImm, PrimExpr, logical_and, maximum, minimum
from ...tir import te
from ..info import show_shape
from .registry import operator

METHODS, PADDINGS = ("bilinear", "nearest"), ("zeros", "border")


@operator("image.grid_sample")
def grid_sample(
    data: te.Tensor,
    grid: te.Tensor,
    *,
    method: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> te.Tensor:
    """Images sampled at computed positions: data [N, C, H, W], grid [N, P, Q, 2] -> [N, C, P, Q] (Jaderberg 2015).

    grid: x and y, where -1 and 1 are the borders of the image, or the centres of its outermost elements with
    ``align_corners``. method: ``bilinear`` or ``nearest``. padding_mode: what lies outside is 0 (``zeros``), or equals
    the nearest element of the image (``border``).
    """
    for name, given, allowed in (("method", method, METHODS), ("padding_mode", padding_mode, PADDINGS)):
        if given not in allowed:
            raise ValueError(f"{name}: got {given!r}; expected {' or '.join(allowed)}")
    if data.ndim != 4 or grid.ndim != 4:
        raise ValueError(f"got shapes {show_shape(data.shape)} and {show_shape(grid.shape)}; expected 4 axes each")
    te.require_equal(data.shape[0], grid.shape[0], "numbers of images and of grids")
    te.require_equal(grid.shape[3], IntImm(2), "coordinates of a position")
    sizes = data.shape[:1:-1]  # along x and y

    def position(value: PrimExpr, size: PrimExpr) -> PrimExpr:
        count, wide = te.f32(size), te.f32(value)
        at = (wide + 1.0) * 0.5 * (count - 1.0) if align_corners else ((wide + 1.0) * count - 1.0) * 0.5
        return minimum(maximum(at, te.f32(0.0)), count - 1.0) if padding_mode == "border" else at

    def element(*i: PrimExpr) -> PrimExpr:
        n, c, p, q = i
        places = [position(grid[n, p, q, axis], size) for axis, size in enumerate(sizes)]

        def at(x: PrimExpr, y: PrimExpr) -> PrimExpr:
            """The element at integers x and y, 0 outside of the image."""
            last = [te.f32(size) - 1.0 for size in sizes]
            inside = [b for v, end in zip((x, y), last, strict=True) for b in (v >= 0.0, v <= end)]
            column, row = (
                te.cast(minimum(maximum(v, te.f32(0.0)), end), INDEX_DTYPE) for v, end in zip((x, y), last, strict=True)
            )
            return te.select(logical_and(*inside), te.f32(data[n, c, row, column]), te.f32(0.0))

        if method == "nearest":
            return te.cast(at(*(te.call("round", v) for v in places)), data.dtype)
        low = [te.call("floor", v) for v in places]
        (x0, y0), (right, down) = low, [v - start for v, start in zip(places, low, strict=True)]
        upper = at(x0, y0) * (1.0 - right) + at(x0 + 1.0, y0) * right
        lower = at(x0, y0 + 1.0) * (1.0 - right) + at(x0 + 1.0, y0 + 1.0) * right
        return te.cast(upper * (1.0 - down) + lower * down, data.dtype)

    return te.compute((*data.shape[:2], *grid.shape[1:3]), element, name="grid_sample")
