# ruff: noqa
# Equal calls are computed once, also those that become equal by it; an output equal to an inner value stays.
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), weights: R.Tuple(R.Tensor((4, 8), "float32"))):
        with R.dataflow():
            w = weights[0]
            lv = R.add(x, w)
            lv1 = R.exp(lv)
            w1 = weights[0]
            lv2 = R.add(x, w1)
            lv3 = R.exp(lv2)
            lv4 = R.add(w1, x)
            lv5 = R.multiply(lv1, lv3)
            gv = R.multiply(lv5, lv4)
            gv1 = R.exp(lv2)
            R.output(gv, gv1)
        with R.dataflow():
            gv2 = R.multiply(x, gv)
            R.output(gv2)
        return (gv, gv1, gv2)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32"), weights: R.Tuple(R.Tensor((4, 8), dtype="float32"))) -> R.Tuple(
        R.Tensor((4, 8), dtype="float32"), R.Tensor((4, 8), dtype="float32"), R.Tensor((4, 8), dtype="float32")
    ):
        with R.dataflow():
            w: R.Tensor((4, 8), dtype="float32") = weights[0]
            lv: R.Tensor((4, 8), dtype="float32") = R.add(x, w)
            lv1: R.Tensor((4, 8), dtype="float32") = R.exp(lv)
            lv4: R.Tensor((4, 8), dtype="float32") = R.add(w, x)
            lv5: R.Tensor((4, 8), dtype="float32") = R.multiply(lv1, lv1)
            gv: R.Tensor((4, 8), dtype="float32") = R.multiply(lv5, lv4)
            gv1: R.Tensor((4, 8), dtype="float32") = R.exp(lv)
            R.output(gv, gv1)
        with R.dataflow():
            gv2: R.Tensor((4, 8), dtype="float32") = R.multiply(x, gv)
            R.output(gv2)
        return (gv, gv1, gv2)
