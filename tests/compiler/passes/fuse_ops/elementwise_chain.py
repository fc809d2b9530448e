# ruff: noqa
# A chain with single readers becomes one function; a value read outside of the chain ends it.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def exp(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def add(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def transpose(a: T.Buffer((4, 8), "float32"), b: T.Buffer((8, 4), "float32")):
        T.func_attr({"op_pattern": "injective"})
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32")):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
            lv1 = R.call_tir(cls.add, (lv, y), out_sinfo=R.Tensor((4, 8), "float32"))
            lv2 = R.call_tir(cls.transpose, (lv1,), out_sinfo=R.Tensor((8, 4), "float32"))
            lv3 = R.call_tir(cls.exp, (y,), out_sinfo=R.Tensor((4, 8), "float32"))
            gv = R.call_tir(cls.transpose, (lv3,), out_sinfo=R.Tensor((8, 4), "float32"))
            gv1 = R.call_tir(cls.exp, (lv3,), out_sinfo=R.Tensor((4, 8), "float32"))
            R.output(lv2, gv, gv1)
        return (lv2, gv, gv1)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def exp(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def add(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def transpose(a: T.Buffer((4, 8), "float32"), b: T.Buffer((8, 4), "float32")):
        T.func_attr({"op_pattern": "injective"})
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32"), y: R.Tensor((4, 8), dtype="float32")) -> R.Tuple(
        R.Tensor((8, 4), dtype="float32"), R.Tensor((8, 4), dtype="float32"), R.Tensor((4, 8), dtype="float32")
    ):
        cls = Module
        with R.dataflow():
            lv2: R.Tensor((8, 4), dtype="float32") = cls.fused_exp_add_transpose(x, y)
            lv3 = R.call_tir(cls.exp, (y,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            gv = R.call_tir(cls.transpose, (lv3,), out_sinfo=R.Tensor((8, 4), dtype="float32"))
            gv1 = R.call_tir(cls.exp, (lv3,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            R.output(lv2, gv, gv1)
        return (lv2, gv, gv1)

    @R.function(private=True)
    def fused_exp_add_transpose(a: R.Tensor((4, 8), dtype="float32"), b: R.Tensor((4, 8), dtype="float32")) -> R.Tensor(
        (8, 4), dtype="float32"
    ):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.exp, (a,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            lv1 = R.call_tir(cls.add, (lv, b), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            gv = R.call_tir(cls.transpose, (lv1,), out_sinfo=R.Tensor((8, 4), dtype="float32"))
            R.output(gv)
        return gv
