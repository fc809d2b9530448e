# ruff: noqa
# exp reads the cache before it is written; moving it after the write would change what it reads. The same pair of
# calls after the write is fused.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def exp(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def append(cache: T.Buffer((4, 8), "float32"), x: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "opaque"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def add(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @R.function
    def main(cache: R.Tensor((4, 8), "float32"), x: R.Tensor((4, 8), "float32")):
        cls = Module
        with R.dataflow():
            before = R.call_tir(cls.exp, (cache,), out_sinfo=R.Tensor((4, 8), "float32"))
            cache1 = R.call_tir_inplace(
                cls.append, (cache, x), out_sinfo=R.Tensor((4, 8), "float32"), inplace_indices=[0]
            )
            gv = R.call_tir(cls.add, (before, x), out_sinfo=R.Tensor((4, 8), "float32"))
            after = R.call_tir(cls.exp, (cache1,), out_sinfo=R.Tensor((4, 8), "float32"))
            gv1 = R.call_tir(cls.add, (after, x), out_sinfo=R.Tensor((4, 8), "float32"))
            R.output(gv, gv1)
        return (gv, gv1)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def exp(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def append(cache: T.Buffer((4, 8), "float32"), x: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "opaque"})
        T.evaluate(0)

    @T.prim_func(private=True)
    def add(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        T.evaluate(0)

    @R.function
    def main(cache: R.Tensor((4, 8), dtype="float32"), x: R.Tensor((4, 8), dtype="float32")) -> R.Tuple(
        R.Tensor((4, 8), dtype="float32"), R.Tensor((4, 8), dtype="float32")
    ):
        cls = Module
        with R.dataflow():
            before = R.call_tir(cls.exp, (cache,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            cache1 = R.call_tir_inplace(
                cls.append, (cache, x), out_sinfo=R.Tensor((4, 8), dtype="float32"), inplace_indices=(0,)
            )
            gv = R.call_tir(cls.add, (before, x), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            gv1: R.Tensor((4, 8), dtype="float32") = cls.fused_exp_add(cache1, x)
            R.output(gv, gv1)
        return (gv, gv1)

    @R.function(private=True)
    def fused_exp_add(a: R.Tensor((4, 8), dtype="float32"), b: R.Tensor((4, 8), dtype="float32")) -> R.Tensor(
        (4, 8), dtype="float32"
    ):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.exp, (a,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            gv = R.call_tir(cls.add, (lv, b), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            R.output(gv)
        return gv
