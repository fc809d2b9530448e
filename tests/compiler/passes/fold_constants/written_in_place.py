# ruff: noqa
# A value that is written in place is not folded: every run needs a fresh buffer.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(a: T.Buffer((), "float32")):
        with T.block("a"):
            a[()] = a[()] * T.float32(2)

    @R.function
    def main():
        cls = Module
        with R.dataflow():
            lv = R.negative(R.const(1.0, "float32"))
            lv1 = R.call_tir_inplace(cls.double, (lv,), out_sinfo=R.Tensor((), "float32"), inplace_indices=[0])
            gv = R.negative(lv1)
            R.output(gv)
        return gv


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(a: T.Buffer((), "float32")):
        # with T.block("root"):
        with T.block("a"):
            T.reads(a[()])
            T.writes(a[()])
            a[()] = a[()] * T.float32(2.0)

    @R.function
    def main() -> R.Tensor((), dtype="float32"):
        cls = Module
        with R.dataflow():
            lv: R.Tensor((), dtype="float32") = R.negative(R.const(1.0, "float32"))
            lv1 = R.call_tir_inplace(cls.double, (lv,), out_sinfo=R.Tensor((), dtype="float32"), inplace_indices=(0,))
            gv: R.Tensor((), dtype="float32") = R.negative(lv1)
            R.output(gv)
        return gv
