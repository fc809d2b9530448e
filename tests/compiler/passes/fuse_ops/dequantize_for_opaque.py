# ruff: noqa
# An opaque reader needs the dequantized weight in memory; the matmul has its own copy. Without ``num_input`` no
# parameter is a weight: the second function keeps all three calls.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def dequantize(
        q: T.Buffer((16, 1), "uint32"), scale: T.Buffer((16, 1), "float16"), w: T.Buffer((16, 8), "float32")
    ):
        T.func_attr({"op_pattern": "injective"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def linear(x: T.Buffer((4, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def custom(w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "opaque"})
        T.evaluate(0)

    @R.function
    def weights(x: R.Tensor((4, 8), "float32"), q: R.Tensor((16, 1), "uint32"), scale: R.Tensor((16, 1), "float16")):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.dequantize, (q, scale), out_sinfo=R.Tensor((16, 8), "float32"))
            gv = R.call_tir(cls.custom, (lv,), out_sinfo=R.Tensor((4, 16), "float32"))
            gv1 = R.call_tir(cls.linear, (x, lv), out_sinfo=R.Tensor((4, 16), "float32"))
            R.output(gv, gv1)
        return (gv, gv1)

    @R.function
    def inputs(x: R.Tensor((4, 8), "float32"), q: R.Tensor((16, 1), "uint32"), scale: R.Tensor((16, 1), "float16")):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.dequantize, (q, scale), out_sinfo=R.Tensor((16, 8), "float32"))
            gv1 = R.call_tir(cls.linear, (x, lv), out_sinfo=R.Tensor((4, 16), "float32"))
            R.output(gv1)
        return gv1


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def dequantize(
        q: T.Buffer((16, 1), "uint32"), scale: T.Buffer((16, 1), "float16"), w: T.Buffer((16, 8), "float32")
    ):
        T.func_attr({"op_pattern": "injective"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def linear(x: T.Buffer((4, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def custom(w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "opaque"})
        T.evaluate(0)

    @R.function
    def weights(
        x: R.Tensor((4, 8), dtype="float32"),
        q: R.Tensor((16, 1), dtype="uint32"),
        scale: R.Tensor((16, 1), dtype="float16"),
    ) -> R.Tuple(R.Tensor((4, 16), dtype="float32"), R.Tensor((4, 16), dtype="float32")):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.dequantize, (q, scale), out_sinfo=R.Tensor((16, 8), dtype="float32"))
            gv = R.call_tir(cls.custom, (lv,), out_sinfo=R.Tensor((4, 16), dtype="float32"))
            gv1: R.Tensor((4, 16), dtype="float32") = cls.fused_dequantize_linear(q, scale, x)
            R.output(gv, gv1)
        return (gv, gv1)

    @R.function
    def inputs(
        x: R.Tensor((4, 8), dtype="float32"),
        q: R.Tensor((16, 1), dtype="uint32"),
        scale: R.Tensor((16, 1), dtype="float16"),
    ) -> R.Tensor((4, 16), dtype="float32"):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.dequantize, (q, scale), out_sinfo=R.Tensor((16, 8), dtype="float32"))
            gv1 = R.call_tir(cls.linear, (x, lv), out_sinfo=R.Tensor((4, 16), dtype="float32"))
            R.output(gv1)
        return gv1

    @R.function(private=True)
    def fused_dequantize_linear(
        q: R.Tensor((16, 1), dtype="uint32"),
        scale: R.Tensor((16, 1), dtype="float16"),
        x: R.Tensor((4, 8), dtype="float32"),
    ) -> R.Tensor((4, 16), dtype="float32"):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.dequantize, (q, scale), out_sinfo=R.Tensor((16, 8), dtype="float32"))
            gv = R.call_tir(cls.linear, (x, lv), out_sinfo=R.Tensor((4, 16), dtype="float32"))
            R.output(gv)
        return gv
