# ruff: noqa
# Results that are parameters, views of them, constants or repeated are copied; results of calls are not, nor parameters
# that the function has written in place.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def increment(x: T.Buffer((4,), "float32")):
        T.func_attr({"num_outputs": 1})
        for i in range(4):
            with T.block("x"):
                vi = T.axis.spatial(4, i)
                x[vi] = x[vi] + T.float32(1)

    @T.prim_func(private=True)
    def double(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        T.func_attr({"num_outputs": 1})
        for i in range(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32"), state: R.Tensor((4,), "float32")):
        cls = Module
        made = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4,), "float32"))
        view: R.Tensor((2, 2), "float32") = R.reshape(x, R.shape([2, 2]))
        written = R.call_tir_inplace(cls.increment, (state,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=(0,))
        return (made, made, x, view, written, R.const(1.0, "float32"))


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def increment(x: T.Buffer((4,), "float32")):
        T.func_attr({"num_outputs": 1})
        # with T.block("root"):
        for i in range(4):
            with T.block("x"):
                vi = T.axis.spatial(4, i)
                T.reads(x[vi])
                T.writes(x[vi])
                x[vi] = x[vi] + T.float32(1.0)

    @T.prim_func(private=True)
    def double(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        T.func_attr({"num_outputs": 1})
        # with T.block("root"):
        for i in range(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                T.reads(x[vi])
                T.writes(y[vi])
                y[vi] = x[vi] * T.float32(2.0)

    @R.function
    def main(x: R.Tensor((4,), dtype="float32"), state: R.Tensor((4,), dtype="float32")) -> R.Tuple(
        R.Tensor((4,), dtype="float32"),
        R.Tensor((4,), dtype="float32"),
        R.Tensor((4,), dtype="float32"),
        R.Tensor((2, 2), dtype="float32"),
        R.Tensor((4,), dtype="float32"),
        R.Tensor((), dtype="float32"),
    ):
        cls = Module
        made = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4,), dtype="float32"))
        view: R.Tensor((2, 2), dtype="float32") = R.reshape(x, R.shape([2, 2]))
        written = R.call_tir_inplace(
            cls.increment, (state,), out_sinfo=R.Tensor((4,), dtype="float32"), inplace_indices=(0,)
        )
        copy0 = R.call_tir(cls.copy, (made,), out_sinfo=R.Tensor((4,), dtype="float32"))
        copy1 = R.call_tir(cls.copy, (x,), out_sinfo=R.Tensor((4,), dtype="float32"))
        copy2 = R.call_tir(cls.copy1, (view,), out_sinfo=R.Tensor((2, 2), dtype="float32"))
        copy3 = R.call_tir(cls.copy2, (), out_sinfo=R.Tensor((), dtype="float32"))
        return (made, copy0, copy1, copy2, written, copy3)

    @T.prim_func(private=True)
    def copy(source: T.Buffer((4,), "float32"), copied: T.Buffer((4,), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        for i0 in range(4):
            with T.block("copied"):
                v_i0 = T.axis.spatial(4, i0)
                T.reads(source[v_i0])
                T.writes(copied[v_i0])
                copied[v_i0] = source[v_i0]

    @T.prim_func(private=True)
    def copy1(source: T.Buffer((2, 2), "float32"), copied: T.Buffer((2, 2), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        for i0, i1 in T.grid(2, 2):
            with T.block("copied"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(source[v_i0, v_i1])
                T.writes(copied[v_i0, v_i1])
                copied[v_i0, v_i1] = source[v_i0, v_i1]

    @T.prim_func(private=True)
    def copy2(copied: T.Buffer((), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        with T.block("copied"):
            T.reads()
            T.writes(copied[()])
            copied[()] = T.float32(1.0)
