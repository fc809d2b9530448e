# ruff: noqa
# A value visible outside of its block is reused by later blocks; a dataflow-local value of an earlier block is not.
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            gv = R.exp(x)
            lv = R.negative(x)
            gv1 = R.multiply(lv, gv)
            R.output(gv, gv1)
        with R.dataflow():
            lv1 = R.exp(x)
            lv2 = R.negative(x)
            gv2 = R.multiply(lv2, lv1)
            R.output(gv2)
        gv3 = R.exp(x)
        return (gv1, gv2, gv3)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32")) -> R.Tuple(
        R.Tensor((4, 8), dtype="float32"), R.Tensor((4, 8), dtype="float32"), R.Tensor((4, 8), dtype="float32")
    ):
        with R.dataflow():
            gv: R.Tensor((4, 8), dtype="float32") = R.exp(x)
            lv: R.Tensor((4, 8), dtype="float32") = R.negative(x)
            gv1: R.Tensor((4, 8), dtype="float32") = R.multiply(lv, gv)
            R.output(gv, gv1)
        with R.dataflow():
            lv2: R.Tensor((4, 8), dtype="float32") = R.negative(x)
            gv2: R.Tensor((4, 8), dtype="float32") = R.multiply(lv2, gv)
            R.output(gv2)
        return (gv1, gv2, gv)
