# ruff: noqa
# A matmul is fused with the bias and the residual that follow it, not with an operator of another shape, nor after a
# value with a second reader.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(x: T.Buffer((4, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def bias(a: T.Buffer((4, 16), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "broadcast"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def add(a: T.Buffer((4, 16), "float32"), b: T.Buffer((4, 16), "float32"), c: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def repeat(a: T.Buffer((4, 16), "float32"), c: T.Buffer((3, 4, 16), "float32")):
        T.func_attr({"op_pattern": "broadcast"})
        T.evaluate(0)

    @R.function
    def main(
        x: R.Tensor((4, 8), "float32"),
        r: R.Tensor((4, 16), "float32"),
        w: R.Tensor((16, 8), "float32"),
        b: R.Tensor((16,), "float32"),
    ):
        R.func_attr({"num_input": 2})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.linear, (x, w), out_sinfo=R.Tensor((4, 16), "float32"))
            lv1 = R.call_tir(cls.bias, (lv, b), out_sinfo=R.Tensor((4, 16), "float32"))
            lv2 = R.call_tir(cls.add, (r, lv1), out_sinfo=R.Tensor((4, 16), "float32"))
            lv3 = R.call_tir(cls.repeat, (lv2,), out_sinfo=R.Tensor((3, 4, 16), "float32"))
            lv4 = R.call_tir(cls.linear, (x, w), out_sinfo=R.Tensor((4, 16), "float32"))
            lv5 = R.call_tir(cls.bias, (lv4, b), out_sinfo=R.Tensor((4, 16), "float32"))
            gv = R.call_tir(cls.add, (lv4, lv5), out_sinfo=R.Tensor((4, 16), "float32"))
            R.output(lv3, gv)
        return (lv3, gv)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(x: T.Buffer((4, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def bias(a: T.Buffer((4, 16), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "broadcast"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def add(a: T.Buffer((4, 16), "float32"), b: T.Buffer((4, 16), "float32"), c: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def repeat(a: T.Buffer((4, 16), "float32"), c: T.Buffer((3, 4, 16), "float32")):
        T.func_attr({"op_pattern": "broadcast"})
        T.evaluate(0)

    @R.function
    def main(
        x: R.Tensor((4, 8), dtype="float32"),
        r: R.Tensor((4, 16), dtype="float32"),
        w: R.Tensor((16, 8), dtype="float32"),
        b: R.Tensor((16,), dtype="float32"),
    ) -> R.Tuple(R.Tensor((3, 4, 16), dtype="float32"), R.Tensor((4, 16), dtype="float32")):
        R.func_attr({"num_input": 2})
        cls = Module
        with R.dataflow():
            lv2: R.Tensor((4, 16), dtype="float32") = cls.fused_linear_bias_add(x, w, b, r)
            lv3 = R.call_tir(cls.repeat, (lv2,), out_sinfo=R.Tensor((3, 4, 16), dtype="float32"))
            lv4 = R.call_tir(cls.linear, (x, w), out_sinfo=R.Tensor((4, 16), dtype="float32"))
            gv: R.Tensor((4, 16), dtype="float32") = cls.fused_bias_add(lv4, b)
            R.output(lv3, gv)
        return (lv3, gv)

    @R.function(private=True)
    def fused_linear_bias_add(
        x: R.Tensor((4, 8), dtype="float32"),
        w: R.Tensor((16, 8), dtype="float32"),
        b: R.Tensor((16,), dtype="float32"),
        a: R.Tensor((4, 16), dtype="float32"),
    ) -> R.Tensor((4, 16), dtype="float32"):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.linear, (x, w), out_sinfo=R.Tensor((4, 16), dtype="float32"))
            lv1 = R.call_tir(cls.bias, (lv, b), out_sinfo=R.Tensor((4, 16), dtype="float32"))
            gv = R.call_tir(cls.add, (a, lv1), out_sinfo=R.Tensor((4, 16), dtype="float32"))
            R.output(gv)
        return gv

    @R.function(private=True)
    def fused_bias_add(a: R.Tensor((4, 16), dtype="float32"), b: R.Tensor((16,), dtype="float32")) -> R.Tensor(
        (4, 16), dtype="float32"
    ):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.bias, (a, b), out_sinfo=R.Tensor((4, 16), dtype="float32"))
            gv = R.call_tir(cls.add, (a, lv), out_sinfo=R.Tensor((4, 16), dtype="float32"))
            R.output(gv)
        return gv
