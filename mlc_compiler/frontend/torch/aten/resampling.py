"""ATen's upsampling functions, behind ``torch.nn.functional.interpolate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....relax.nodes import Expr
from ...resample import Resampling, resample
from ...values import ImportModelError, rank

Row = Callable[..., Expr]


def _resampled(x: Expr, size: Sequence[int] | None, scales: Sequence[float] | None, how: Resampling) -> Expr:
    axes = range(2, rank(x))
    counts = [None] * len(axes) if size is None else list(size)
    if not all(count is None or isinstance(count, int) for count in counts):
        raise ImportModelError(f"interpolate: got the symbolic size {[str(c) for c in counts]}; expected numbers")
    return resample(x, axes, counts, [None] * len(axes) if scales is None else list(scales), how)


def _nearest(coordinates: str) -> Row:
    how = Resampling("nearest", coordinates, "floor" if coordinates == "asymmetric" else "round_prefer_ceil")
    return lambda x, size, scales=None: _resampled(x, size, scales, how)


def _weighted(kind: str, antialias: bool = False) -> Row:
    a = -0.5 if antialias else -0.75

    def row(x: Expr, size: Sequence[int] | None, align_corners: bool, scales: Sequence[float] | None = None) -> Expr:
        coordinates = "align_corners" if align_corners else "half_pixel"
        how = Resampling(kind, coordinates, a=a, antialias=antialias, exclude_outside=antialias)
        return _resampled(x, size, scales, how)

    return row


ROWS: dict[str, Row] = {
    **{f"upsample_nearest{n}d.vec": _nearest("asymmetric") for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d.vec": _nearest("half_pixel") for n in (1, 2, 3)},
    "_upsample_bicubic2d_aa.vec": _weighted("cubic", antialias=True),
    "_upsample_bilinear2d_aa.vec": _weighted("linear", antialias=True),
    "upsample_linear1d.vec": _weighted("linear"),
    "upsample_bilinear2d.vec": _weighted("linear"),
    "upsample_trilinear3d.vec": _weighted("linear"),
    "upsample_bicubic2d.vec": _weighted("cubic"),
}
