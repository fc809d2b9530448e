# ruff: noqa
# An unused chain and an unused output are removed; an in-place update stays although its result is not read.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def exp(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.evaluate(0)

    @T.prim_func(private=True)
    def append(cache: T.Buffer((4, 8), "float32"), x: T.Buffer((4, 8), "float32")):
        T.evaluate(0)

    @R.function
    def main(
        x: R.Tensor((4, 8), "float32"),
        cache: R.Tensor((4, 8), "float32"),
        weights: R.Tuple(R.Tensor((4, 8), "float32")),
    ):
        cls = Module
        with R.dataflow():
            w = weights[0]
            lv = R.call_tir(cls.exp, (w,), out_sinfo=R.Tensor((4, 8), "float32"))
            lv1 = R.call_tir(cls.exp, (lv,), out_sinfo=R.Tensor((4, 8), "float32"))
            lv2 = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
            lv3 = R.call_tir_inplace(
                cls.append, (cache, lv2), out_sinfo=R.Tensor((4, 8), "float32"), inplace_indices=[0]
            )
            gv = R.call_tir(cls.exp, (lv2,), out_sinfo=R.Tensor((4, 8), "float32"))
            gv1 = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
            R.output(gv, gv1)
        return gv


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def exp(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.evaluate(0)

    @T.prim_func(private=True)
    def append(cache: T.Buffer((4, 8), "float32"), x: T.Buffer((4, 8), "float32")):
        T.evaluate(0)

    @R.function
    def main(
        x: R.Tensor((4, 8), dtype="float32"),
        cache: R.Tensor((4, 8), dtype="float32"),
        weights: R.Tuple(R.Tensor((4, 8), dtype="float32")),
    ) -> R.Tensor((4, 8), dtype="float32"):
        cls = Module
        with R.dataflow():
            lv2 = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            lv3 = R.call_tir_inplace(
                cls.append, (cache, lv2), out_sinfo=R.Tensor((4, 8), dtype="float32"), inplace_indices=(0,)
            )
            gv = R.call_tir(cls.exp, (lv2,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            R.output(gv)
        return gv
