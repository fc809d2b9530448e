"""Compile ``y = relu(x @ w + b)``, for any number of rows, to the library that call_library.c loads.

python make_library.py linear.so
"""

from __future__ import annotations

import sys

from mlc_compiler import I, R, T, build


@I.ir_module
class Linear:
    @R.function
    def main(
        x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3, 2), "float32"), b: R.Tensor((2,), "float32")
    ) -> R.Tensor(("n", 2), "float32"):
        n = T.int64()
        with R.dataflow():
            product: R.Tensor((n, 2), "float32") = R.matmul(x, w)
            total: R.Tensor((n, 2), "float32") = R.add(product, b)
            y: R.Tensor((n, 2), "float32") = R.nn.relu(total)
            R.output(y)
        return y


if __name__ == "__main__":
    build(Linear).export_library(sys.argv[1])
