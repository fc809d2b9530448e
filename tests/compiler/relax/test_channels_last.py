"""Convolutions and pooling in channels-last layout give the results of channels-first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlc_compiler.relax.ops.registry import OperatorError
from tests.compiler.relax.check_op import run_op
from tests.compiler.relax.test_every_operator import normal

CASES: dict[str, tuple[tuple[np.ndarray, ...], dict[str, Any]]] = {
    "nn.conv1d": ((normal(2, 4, 7), normal(6, 2, 3)), {"strides": 2, "padding": (2, 1), "groups": 2}),
    "nn.conv2d": ((normal(1, 4, 6, 5), normal(4, 1, 2, 3)), {"padding": (1, 2), "dilation": 2, "groups": 4}),
    "nn.conv3d": ((normal(1, 2, 3, 4, 5), normal(3, 2, 1, 2, 3)), {"strides": (1, 2, 1), "padding": 1}),
    "nn.max_pool1d": ((normal(2, 3, 6),), {"pool_size": 3, "strides": 2}),
    "nn.max_pool2d": ((normal(2, 3, 6, 5),), {"pool_size": 3, "strides": 2, "ceil_mode": True}),
    "nn.avg_pool3d": ((normal(1, 3, 4, 6, 5),), {"pool_size": 2, "padding": 1}),
    "nn.avg_pool2d": ((normal(2, 3, 6, 5),), {"pool_size": (2, 3), "padding": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_channels_last(name: str):
    (x, *weights), attrs = CASES[name]
    option = "layout" if "pool" in name else "data_layout"
    layout = {3: "NWC", 4: "NHWC", 5: "NDHWC"}[x.ndim]
    first = run_op(name, x, *weights, **attrs)
    last = run_op(name, np.ascontiguousarray(np.moveaxis(x, 1, -1)), *weights, **attrs, **{option: layout})
    np.testing.assert_allclose(np.moveaxis(last, -1, 1), first, rtol=1e-5, atol=1e-6)


def test_other_layouts_are_refused():
    with pytest.raises(OperatorError, match="data_layout: got 'HWCN'; expected 'NCHW' or 'NHWC'"):
        run_op("nn.conv2d", normal(1, 2, 3, 3), normal(2, 2, 1, 1), data_layout="HWCN")
