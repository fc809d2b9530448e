# ruff: noqa
# A divisor as scale and a sum as mask.
@I.ir_module
class Module:
    @R.function
    def main(
        q: R.Tensor((1, 2, "n", 8), "float32"),
        k: R.Tensor((1, 2, 8, "m"), "float32"),
        v: R.Tensor((1, 2, "m", 8), "float32"),
        bias: R.Tensor((1, 1, 1, "m"), "float32"),
    ):
        with R.dataflow():
            s = R.divide(R.matmul(q, k), R.const(4.0, "float32"))
            b = R.add(bias, s)
            p = R.nn.softmax(b, axis=-1)
            y = R.matmul(p, v)
            R.output(y)
        return y


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function
    def main(
        q: R.Tensor((1, 2, "n", 8), dtype="float32"),
        k: R.Tensor((1, 2, 8, "m"), dtype="float32"),
        v: R.Tensor((1, 2, "m", 8), dtype="float32"),
        bias: R.Tensor((1, 1, 1, "m"), dtype="float32"),
    ) -> R.Tensor((1, 2, "n", 8), dtype="float32"):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            lv: R.Tensor((1, 2, n, m), dtype="float32") = R.matmul(q, k)
            s: R.Tensor((1, 2, n, m), dtype="float32") = R.divide(lv, R.const(4.0, "float32"))
            b: R.Tensor((1, 2, n, m), dtype="float32") = R.add(bias, s)
            p: R.Tensor((1, 2, n, m), dtype="float32") = R.nn.softmax(b, axis=-1)
            y: R.Tensor((1, 2, n, 8), dtype="float32") = R.nn.dense_attention(
                q, k, v, bias, scale=0.25, zero_rows=False
            )
            R.output(y)
        return y
