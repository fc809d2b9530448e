# ruff: noqa
# A chain of constants becomes one; a broadcast scalar and a value of symbolic shape stay calls.
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")):
        n = T.int64()
        with R.dataflow():
            lv = R.add(R.const(2.0, "float32"), R.const(3.0, "float32"))
            lv1 = R.sqrt(R.multiply(lv, lv))
            lv2 = R.multiply(x, lv1)
            lv3 = R.full(R.shape([4, 8]), R.const(1.5, "float32"), dtype="float32")
            gv = R.add(lv2, lv1)
            gv1 = R.negative(lv1)
            R.output(lv3, gv, gv1)
        return (lv3, gv, gv1)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8), dtype="float32")) -> R.Tuple(
        R.Tensor((4, 8), dtype="float32"), R.Tensor(("n", 8), dtype="float32"), R.Tensor((), dtype="float32")
    ):
        n = T.int64()
        with R.dataflow():
            lv2: R.Tensor((n, 8), dtype="float32") = R.multiply(x, R.const(5.0, "float32"))
            lv3: R.Tensor((4, 8), dtype="float32") = R.full(R.shape([4, 8]), R.const(1.5, "float32"), dtype="float32")
            gv: R.Tensor((n, 8), dtype="float32") = R.add(lv2, R.const(5.0, "float32"))
            gv1: R.Tensor((), dtype="float32") = R.const(-5.0, "float32")
            R.output(lv3, gv, gv1)
        return (lv3, gv, gv1)
