"""The pooling operators by their number of spatial axes, and the inverse of pooling with indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.expr import as_expr
from ..relax import ops
from ..relax.nodes import Expr
from . import blocks
from .values import Size, dtype_of, plain

MAXIMA = {1: ops.max_pool1d, 2: ops.max_pool2d, 3: ops.max_pool3d}
PLACES = {1: ops.argmax_pool1d, 2: ops.argmax_pool2d, 3: ops.argmax_pool3d}
MEANS = {1: ops.avg_pool1d, 2: ops.avg_pool2d, 3: ops.avg_pool3d}


def unpooled(x: Expr, places: Expr, lead: Sequence[Size], size: Sequence[Size]) -> Expr:
    """Zeros of shape [*lead, *size], with ``x`` at ``places``: indices into the axes ``size``, flattened."""
    zeros = blocks.filled((*lead, plain(as_expr(math.prod(size)))), 0, dtype_of(x))
    values, targets = (blocks.reshape(v, (*lead, -1)) for v in (x, places))
    return ops.reshape(ops.scatter_elements(zeros, targets, values, axis=-1), (*lead, *size))
