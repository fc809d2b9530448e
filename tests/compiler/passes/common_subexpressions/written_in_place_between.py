# ruff: noqa
# The cache is written between two equal reads: both stay. Two fresh buffers, one of them written, are not shared.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def exp(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.evaluate(0)

    @T.prim_func(private=True)
    def append(cache: T.Buffer((4, 8), "float32"), x: T.Buffer((4, 8), "float32")):
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), cache: R.Tensor((4, 8), "float32")):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.exp, (cache,), out_sinfo=R.Tensor((4, 8), "float32"))
            cache1 = R.call_tir_inplace(
                cls.append, (cache, x), out_sinfo=R.Tensor((4, 8), "float32"), inplace_indices=[0]
            )
            gv1 = R.call_tir(cls.exp, (cache,), out_sinfo=R.Tensor((4, 8), "float32"))
            gv2 = R.call_tir(cls.exp, (cache,), out_sinfo=R.Tensor((4, 8), "float32"))
            lv = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
            gv3 = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
            gv4 = R.call_tir_inplace(cls.append, (lv, x), out_sinfo=R.Tensor((4, 8), "float32"), inplace_indices=[0])
            R.output(gv, gv1, gv2, gv3, gv4)
        return (gv, gv1, gv2, gv3, gv4)


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
    def main(x: R.Tensor((4, 8), dtype="float32"), cache: R.Tensor((4, 8), dtype="float32")) -> R.Tuple(
        R.Tensor((4, 8), dtype="float32"),
        R.Tensor((4, 8), dtype="float32"),
        R.Tensor((4, 8), dtype="float32"),
        R.Tensor((4, 8), dtype="float32"),
        R.Tensor((4, 8), dtype="float32"),
    ):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.exp, (cache,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            cache1 = R.call_tir_inplace(
                cls.append, (cache, x), out_sinfo=R.Tensor((4, 8), dtype="float32"), inplace_indices=(0,)
            )
            gv1 = R.call_tir(cls.exp, (cache,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            lv = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            gv3 = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            gv4 = R.call_tir_inplace(
                cls.append, (lv, x), out_sinfo=R.Tensor((4, 8), dtype="float32"), inplace_indices=(0,)
            )
            R.output(gv, gv1, gv3, gv4)
        return (gv, gv1, gv1, gv3, gv4)
