# ruff: noqa
# Private functions that no exported function reaches are removed.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def exp(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.evaluate(0)

    @T.prim_func(private=True)
    def log(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.evaluate(0)

    @T.prim_func
    def exported_kernel(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.evaluate(0)

    @R.function(private=True)
    def unused(x: R.Tensor((4, 8), "float32")):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.log, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
            R.output(gv)
        return gv

    @R.function(private=True)
    def helper(x: R.Tensor((4, 8), "float32")):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        cls = Module
        with R.dataflow():
            gv: R.Tensor((4, 8), "float32") = cls.helper(x)
            R.output(gv)
        return gv


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def exp(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.evaluate(0)

    @T.prim_func
    def exported_kernel(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.evaluate(0)

    @R.function(private=True)
    def helper(x: R.Tensor((4, 8), dtype="float32")) -> R.Tensor((4, 8), dtype="float32"):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32")) -> R.Tensor((4, 8), dtype="float32"):
        cls = Module
        with R.dataflow():
            gv: R.Tensor((4, 8), dtype="float32") = cls.helper(x)
            R.output(gv)
        return gv
