# ruff: noqa
# Both halves of a split are read by one call: the split is fused into it, with the items taken from the tuple.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def split(x: T.Buffer((4, 16), "float32"), a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "injective"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def silu(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def multiply(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((4, 16), "float32")):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.split, (x,), out_sinfo=[R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")])
            gate = lv[0]
            up = lv[1]
            lv1 = R.call_tir(cls.silu, (gate,), out_sinfo=R.Tensor((4, 8), "float32"))
            gv = R.call_tir(cls.multiply, (lv1, up), out_sinfo=R.Tensor((4, 8), "float32"))
            lv2 = R.call_tir(cls.split, (x,), out_sinfo=[R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")])
            left = lv2[0]
            gv1 = lv2[1]
            gv2 = R.call_tir(cls.silu, (left,), out_sinfo=R.Tensor((4, 8), "float32"))
            R.output(gv, gv1, gv2)
        return (gv, gv1, gv2)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def split(x: T.Buffer((4, 16), "float32"), a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "injective"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def silu(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def multiply(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((4, 16), dtype="float32")) -> R.Tuple(
        R.Tensor((4, 8), dtype="float32"), R.Tensor((4, 8), dtype="float32"), R.Tensor((4, 8), dtype="float32")
    ):
        cls = Module
        with R.dataflow():
            gv: R.Tensor((4, 8), dtype="float32") = cls.fused_split_silu_multiply(x)
            lv2 = R.call_tir(
                cls.split, (x,), out_sinfo=[R.Tensor((4, 8), dtype="float32"), R.Tensor((4, 8), dtype="float32")]
            )
            left: R.Tensor((4, 8), dtype="float32") = lv2[0]
            gv1: R.Tensor((4, 8), dtype="float32") = lv2[1]
            gv2 = R.call_tir(cls.silu, (left,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            R.output(gv, gv1, gv2)
        return (gv, gv1, gv2)

    @R.function(private=True)
    def fused_split_silu_multiply(x: R.Tensor((4, 16), dtype="float32")) -> R.Tensor((4, 8), dtype="float32"):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(
                cls.split, (x,), out_sinfo=[R.Tensor((4, 8), dtype="float32"), R.Tensor((4, 8), dtype="float32")]
            )
            lv1 = R.call_tir(cls.silu, (lv[0],), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            gv = R.call_tir(cls.multiply, (lv1, lv[1]), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            R.output(gv)
        return gv
