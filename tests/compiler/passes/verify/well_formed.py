# ruff: noqa
# A well-formed module is unchanged; ``test_verify_pass.py`` has malformed ones.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def copy(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        T.func_attr({"num_outputs": 1})
        for i in range(8):
            with T.block("y"):
                vi = T.axis.spatial(8, i)
                y[vi] = x[vi]

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        cls = Module
        y = R.call_tir(cls.copy, (x,), out_sinfo=R.Tensor((8,), "float32"))
        return y


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def copy(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        T.func_attr({"num_outputs": 1})
        # with T.block("root"):
        for i in range(8):
            with T.block("y"):
                vi = T.axis.spatial(8, i)
                T.reads(x[vi])
                T.writes(y[vi])
                y[vi] = x[vi]

    @R.function
    def main(x: R.Tensor((8,), dtype="float32")) -> R.Tensor((8,), dtype="float32"):
        cls = Module
        y = R.call_tir(cls.copy, (x,), out_sinfo=R.Tensor((8,), dtype="float32"))
        return y
