# ruff: noqa
# matmul(x, permute_dims(w)) becomes linear(x, w); not with a wider result dtype, another permutation, more axes, or a
# matrix that is written in place in between.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def clear(w: T.Buffer((3, 4), "float32")):
        T.func_attr({"op_pattern": "opaque"})
        for i, j in T.grid(3, 4):
            with T.block("w"):
                vi, vj = T.axis.remap("SS", [i, j])
                w[vi, vj] = T.float32(0)

    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        half: R.Tensor(("n", 4), "float16"),
        v: R.Tensor((3, 4), "float32"),
        w: R.Tensor((3, 4), "float32"),
        square: R.Tensor((4, 4), "float32"),
        batch: R.Tensor((2, 3, 4), "float32"),
    ):
        cls = Module
        with R.dataflow():
            vt = R.permute_dims(v)
            a = R.matmul(x, vt)
            b = R.matmul(half, vt)
            same = R.permute_dims(square, axes=[0, 1])
            c = R.matmul(x, same)
            bt = R.permute_dims(batch, axes=[0, 2, 1])
            d = R.matmul(x, bt)
            wt = R.permute_dims(w, axes=[1, 0])
            e = R.matmul(x, wt)
            w1 = R.call_tir_inplace(cls.clear, (w,), inplace_indices=[0], out_sinfo=R.Tensor((3, 4), "float32"))
            f = R.matmul(x, wt)
            R.output(a, b, c, d, e, f, w1)
        return (a, b, c, d, e, f, w1)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def clear(w: T.Buffer((3, 4), "float32")):
        T.func_attr({"op_pattern": "opaque"})
        # with T.block("root"):
        for i, j in T.grid(3, 4):
            with T.block("w"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads()
                T.writes(w[vi, vj])
                w[vi, vj] = T.float32(0.0)

    @R.function
    def main(
        x: R.Tensor(("n", 4), dtype="float32"),
        half: R.Tensor(("n", 4), dtype="float16"),
        v: R.Tensor((3, 4), dtype="float32"),
        w: R.Tensor((3, 4), dtype="float32"),
        square: R.Tensor((4, 4), dtype="float32"),
        batch: R.Tensor((2, 3, 4), dtype="float32"),
    ) -> R.Tuple(
        R.Tensor(("n", 3), dtype="float32"),
        R.Tensor(("n", 3), dtype="float32"),
        R.Tensor(("n", 4), dtype="float32"),
        R.Tensor((2, "n", 3), dtype="float32"),
        R.Tensor(("n", 3), dtype="float32"),
        R.Tensor(("n", 3), dtype="float32"),
        R.Tensor((3, 4), dtype="float32"),
    ):
        n = T.int64()
        cls = Module
        with R.dataflow():
            vt: R.Tensor((4, 3), dtype="float32") = R.permute_dims(v)
            a: R.Tensor((n, 3), dtype="float32") = R.linear(x, v)
            b: R.Tensor((n, 3), dtype="float32") = R.matmul(half, vt)
            same: R.Tensor((4, 4), dtype="float32") = R.permute_dims(square, axes=(0, 1))
            c: R.Tensor((n, 4), dtype="float32") = R.matmul(x, same)
            bt: R.Tensor((2, 4, 3), dtype="float32") = R.permute_dims(batch, axes=(0, 2, 1))
            d: R.Tensor((2, n, 3), dtype="float32") = R.matmul(x, bt)
            wt: R.Tensor((4, 3), dtype="float32") = R.permute_dims(w, axes=(1, 0))
            e: R.Tensor((n, 3), dtype="float32") = R.linear(x, w)
            w1 = R.call_tir_inplace(cls.clear, (w,), out_sinfo=R.Tensor((3, 4), dtype="float32"), inplace_indices=(0,))
            f: R.Tensor((n, 3), dtype="float32") = R.matmul(x, wt)
            R.output(a, b, c, d, e, w1, f)
        return (a, b, c, d, e, f, w1)
