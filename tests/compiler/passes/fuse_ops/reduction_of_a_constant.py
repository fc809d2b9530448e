# ruff: noqa
# A reduction without tensors as inputs, such as a fused one of a constant, is no prologue of a matmul.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def softmax_of_ones(c: T.Buffer((1, 8), "float32")):
        T.func_attr({"op_pattern": "reduction"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def linear(x: T.Buffer((1, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((1, 16), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @R.function
    def main(w: R.Tensor((16, 8), "float32")):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.softmax_of_ones, (), out_sinfo=R.Tensor((1, 8), "float32"))
            gv = R.call_tir(cls.linear, (lv, w), out_sinfo=R.Tensor((1, 16), "float32"))
            R.output(gv)
        return gv


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def softmax_of_ones(c: T.Buffer((1, 8), "float32")):
        T.func_attr({"op_pattern": "reduction"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def linear(x: T.Buffer((1, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((1, 16), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        T.evaluate(0)

    @R.function
    def main(w: R.Tensor((16, 8), dtype="float32")) -> R.Tensor((1, 16), dtype="float32"):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.softmax_of_ones, (), out_sinfo=R.Tensor((1, 8), dtype="float32"))
            gv = R.call_tir(cls.linear, (lv, w), out_sinfo=R.Tensor((1, 16), dtype="float32"))
            R.output(gv)
        return gv
