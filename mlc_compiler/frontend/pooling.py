"""The pooling operators by their number of spatial axes."""

from __future__ import annotations

from ..relax import ops

MAXIMA = {1: ops.max_pool1d, 2: ops.max_pool2d, 3: ops.max_pool3d}
PLACES = {1: ops.argmax_pool1d, 2: ops.argmax_pool2d, 3: ops.argmax_pool3d}
MEANS = {1: ops.avg_pool1d, 2: ops.avg_pool2d, 3: ops.avg_pool3d}
