"""Chains of reductions for which tiles of columns are of no use."""

from __future__ import annotations

import numpy as np

from mlc_compiler import build
from mlc_compiler.script import parse

ONE_CHANNEL_A_GROUP = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((7, 2), "float32"), gamma: R.Tensor((2,), "float32")):
        with R.dataflow():
            y = R.nn.group_norm(x, gamma, num_groups=2, channel_axis=-1, axes=(), epsilon=0.25)
            R.output(y)
        return y
"""


def test_a_reduction_without_columns_is_left_to_other_rules() -> None:
    """Of one element, the mean is the element: the results are 0."""
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    np.testing.assert_array_equal(
        build(parse(ONE_CHANNEL_A_GROUP))["main"](x, np.ones(2, np.float32)), np.zeros((7, 2))
    )
