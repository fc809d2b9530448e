# ruff: noqa
# An activation is not fused into the matmul that reads it, which would recompute it; its producers are fused into it.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(x: T.Buffer((4, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def silu(a: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def multiply(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), up: R.Tensor((4, 8), "float32"), w: R.Tensor((16, 8), "float32")):
        R.func_attr({"num_input": 2})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.silu, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
            lv1 = R.call_tir(cls.multiply, (lv, up), out_sinfo=R.Tensor((4, 8), "float32"))
            gv = R.call_tir(cls.linear, (lv1, w), out_sinfo=R.Tensor((4, 16), "float32"))
            R.output(gv)
        return gv


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(x: T.Buffer((4, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def silu(a: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def multiply(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @R.function
    def main(
        x: R.Tensor((4, 8), dtype="float32"),
        up: R.Tensor((4, 8), dtype="float32"),
        w: R.Tensor((16, 8), dtype="float32"),
    ) -> R.Tensor((4, 16), dtype="float32"):
        R.func_attr({"num_input": 2})
        cls = Module
        with R.dataflow():
            lv1: R.Tensor((4, 8), dtype="float32") = cls.fused_silu_multiply(x, up)
            gv = R.call_tir(cls.linear, (lv1, w), out_sinfo=R.Tensor((4, 16), dtype="float32"))
            R.output(gv)
        return gv

    @R.function(private=True)
    def fused_silu_multiply(a: R.Tensor((4, 8), dtype="float32"), b: R.Tensor((4, 8), dtype="float32")) -> R.Tensor(
        (4, 8), dtype="float32"
    ):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.silu, (a,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            gv = R.call_tir(cls.multiply, (lv, b), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            R.output(gv)
        return gv
