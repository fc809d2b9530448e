# ruff: noqa
# Two matmuls are not fused, nor a reduction with the matmul that reads it; a reduction is fused with its epilogue.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def norm(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "reduction"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def exp(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def linear(x: T.Buffer((4, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def linear1(x: T.Buffer((4, 16), "float32"), w: T.Buffer((8, 16), "float32"), y: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), up: R.Tensor((16, 8), "float32"), down: R.Tensor((8, 16), "float32")):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.norm, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
            lv1 = R.call_tir(cls.linear, (lv, up), out_sinfo=R.Tensor((4, 16), "float32"))
            lv2 = R.call_tir(cls.linear1, (lv1, down), out_sinfo=R.Tensor((4, 8), "float32"))
            lv3 = R.call_tir(cls.norm, (lv2,), out_sinfo=R.Tensor((4, 8), "float32"))
            gv = R.call_tir(cls.exp, (lv3,), out_sinfo=R.Tensor((4, 8), "float32"))
            R.output(gv)
        return gv


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def norm(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "reduction"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def exp(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def linear(x: T.Buffer((4, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def linear1(x: T.Buffer((4, 16), "float32"), w: T.Buffer((8, 16), "float32"), y: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @R.function
    def main(
        x: R.Tensor((4, 8), dtype="float32"),
        up: R.Tensor((16, 8), dtype="float32"),
        down: R.Tensor((8, 16), dtype="float32"),
    ) -> R.Tensor((4, 8), dtype="float32"):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.norm, (x,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            lv1 = R.call_tir(cls.linear, (lv, up), out_sinfo=R.Tensor((4, 16), dtype="float32"))
            lv2 = R.call_tir(cls.linear1, (lv1, down), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            gv: R.Tensor((4, 8), dtype="float32") = cls.fused_norm_exp(lv2)
            R.output(gv)
        return gv

    @R.function(private=True)
    def fused_norm_exp(x: R.Tensor((4, 8), dtype="float32")) -> R.Tensor((4, 8), dtype="float32"):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.norm, (x,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            gv = R.call_tir(cls.exp, (lv,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            R.output(gv)
        return gv
