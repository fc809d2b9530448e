# ruff: noqa
# What stays: scores that are a result, few queries, an inner size that is not known, a softmax of another axis.
@I.ir_module
class Module:
    @R.function
    def main(
        q: R.Tensor((2, 9, 8), "float32"),
        k: R.Tensor((2, 8, 9), "float32"),
        v: R.Tensor((2, 9, 8), "float32"),
        one: R.Tensor((2, 1, 8), "float32"),
        wide: R.Tensor((2, 9, "d"), "float32"),
    ):
        with R.dataflow():
            s = R.matmul(q, k)
            y = R.matmul(R.nn.softmax(s), v)
            t = R.matmul(one, k)
            z = R.matmul(R.nn.softmax(t), v)
            u = R.matmul(q, k)
            w = R.matmul(R.nn.softmax(u), wide)
            a = R.matmul(q, k)
            x = R.matmul(R.nn.softmax(a, axis=1), v)
            R.output(s, y, z, w, x)
        return (s, y, z, w, x)


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function
    def main(
        q: R.Tensor((2, 9, 8), dtype="float32"),
        k: R.Tensor((2, 8, 9), dtype="float32"),
        v: R.Tensor((2, 9, 8), dtype="float32"),
        one: R.Tensor((2, 1, 8), dtype="float32"),
        wide: R.Tensor((2, 9, "d"), dtype="float32"),
    ) -> R.Tuple(
        R.Tensor((2, 9, 9), dtype="float32"),
        R.Tensor((2, 9, 8), dtype="float32"),
        R.Tensor((2, 1, 8), dtype="float32"),
        R.Tensor((2, 9, "d"), dtype="float32"),
        R.Tensor((2, 9, 8), dtype="float32"),
    ):
        d = T.int64()
        with R.dataflow():
            s: R.Tensor((2, 9, 9), dtype="float32") = R.matmul(q, k)
            lv: R.Tensor((2, 9, 9), dtype="float32") = R.nn.softmax(s)
            y: R.Tensor((2, 9, 8), dtype="float32") = R.matmul(lv, v)
            t: R.Tensor((2, 1, 9), dtype="float32") = R.matmul(one, k)
            lv_1: R.Tensor((2, 1, 9), dtype="float32") = R.nn.softmax(t)
            z: R.Tensor((2, 1, 8), dtype="float32") = R.matmul(lv_1, v)
            u: R.Tensor((2, 9, 9), dtype="float32") = R.matmul(q, k)
            lv_2: R.Tensor((2, 9, 9), dtype="float32") = R.nn.softmax(u)
            w: R.Tensor((2, 9, d), dtype="float32") = R.matmul(lv_2, wide)
            a: R.Tensor((2, 9, 9), dtype="float32") = R.matmul(q, k)
            lv_3: R.Tensor((2, 9, 9), dtype="float32") = R.nn.softmax(a, axis=1)
            x: R.Tensor((2, 9, 8), dtype="float32") = R.matmul(lv_3, v)
            R.output(s, y, z, w, x)
        return (s, y, z, w, x)
