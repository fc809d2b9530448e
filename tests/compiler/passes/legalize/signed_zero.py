# ruff: noqa
# Zeros of different sign are different arguments.
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.divide(x, R.const(0.0, "float32"))
            b = R.divide(x, R.const(-0.0, "float32"))
            R.output(a, b)
        return (a, b)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), dtype="float32")) -> R.Tuple(
        R.Tensor((4,), dtype="float32"), R.Tensor((4,), dtype="float32")
    ):
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.divide, (x,), out_sinfo=R.Tensor((4,), dtype="float32"))
            b = R.call_tir(cls.divide1, (x,), out_sinfo=R.Tensor((4,), dtype="float32"))
            R.output(a, b)
        return (a, b)

    @T.prim_func(private=True)
    def divide(x: T.Buffer((4,), "float32"), divide: T.Buffer((4,), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        for i0 in range(4):
            with T.block("divide"):
                v_i0 = T.axis.spatial(4, i0)
                T.reads(x[v_i0])
                T.writes(divide[v_i0])
                divide[v_i0] = x[v_i0] / T.float32(0.0)

    @T.prim_func(private=True)
    def divide1(x: T.Buffer((4,), "float32"), divide: T.Buffer((4,), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        for i0 in range(4):
            with T.block("divide"):
                v_i0 = T.axis.spatial(4, i0)
                T.reads(x[v_i0])
                T.writes(divide[v_i0])
                divide[v_i0] = x[v_i0] / T.float32(-0.0)
