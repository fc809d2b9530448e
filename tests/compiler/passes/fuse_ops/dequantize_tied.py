# ruff: noqa
# Two readers of a dequantized table, embedding and output projection: each dequantizes what it reads.
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
    def take(table: T.Buffer((16, 8), "float32"), ids: T.Buffer((4,), "int32"), y: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "injective"})
        T.evaluate(0)

    @R.function
    def main(
        ids: R.Tensor((4,), "int32"),
        packed_params: R.Tuple(R.Tensor((16, 1), "uint32"), R.Tensor((16, 1), "float16")),
    ):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            q = packed_params[0]
            scale = packed_params[1]
            lv = R.call_tir(cls.dequantize, (q, scale), out_sinfo=R.Tensor((16, 8), "float32"))
            lv1 = R.call_tir(cls.take, (lv, ids), out_sinfo=R.Tensor((4, 8), "float32"))
            gv = R.call_tir(cls.linear, (lv1, lv), out_sinfo=R.Tensor((4, 16), "float32"))
            R.output(gv)
        return gv


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
    def take(table: T.Buffer((16, 8), "float32"), ids: T.Buffer((4,), "int32"), y: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "injective"})
        T.evaluate(0)

    @R.function
    def main(
        ids: R.Tensor((4,), dtype="int32"),
        packed_params: R.Tuple(R.Tensor((16, 1), dtype="uint32"), R.Tensor((16, 1), dtype="float16")),
    ) -> R.Tensor((4, 16), dtype="float32"):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            q: R.Tensor((16, 1), dtype="uint32") = packed_params[0]
            scale: R.Tensor((16, 1), dtype="float16") = packed_params[1]
            lv1: R.Tensor((4, 8), dtype="float32") = cls.fused_dequantize_take(q, scale, ids)
            gv: R.Tensor((4, 16), dtype="float32") = cls.fused_dequantize_linear(q, scale, lv1)
            R.output(gv)
        return gv

    @R.function(private=True)
    def fused_dequantize_take(
        q: R.Tensor((16, 1), dtype="uint32"),
        scale: R.Tensor((16, 1), dtype="float16"),
        ids: R.Tensor((4,), dtype="int32"),
    ) -> R.Tensor((4, 8), dtype="float32"):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.dequantize, (q, scale), out_sinfo=R.Tensor((16, 8), dtype="float32"))
            gv = R.call_tir(cls.take, (lv, ids), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            R.output(gv)
        return gv

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
