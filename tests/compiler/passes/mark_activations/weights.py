# ruff: noqa
# Fields of the tuple of weights, and constants, are not marked; a parameter is marked when any call passes another
# value.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def add(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("c"):
                vi = T.axis.spatial(4, i)
                c[vi] = a[vi] + b[vi]

    @T.prim_func(private=True)
    def sub(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("c"):
                vi = T.axis.spatial(4, i)
                c[vi] = a[vi] - b[vi]

    @R.function
    def main(
        x: R.Tensor((4,), "float32"), packed_params: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))
    ):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            w = packed_params[0]
            y = R.call_tir(cls.add, (x, w), out_sinfo=R.Tensor((4,), "float32"))
            z = R.call_tir(cls.add, (y, packed_params[1]), out_sinfo=R.Tensor((4,), "float32"))
            u = R.call_tir(cls.sub, (w, R.const([1.0, 2.0, 3.0, 4.0], "float32")), out_sinfo=R.Tensor((4,), "float32"))
            v = R.call_tir(cls.sub, (u, w), out_sinfo=R.Tensor((4,), "float32"))
            R.output(z, v)
        return (z, v)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def add(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
        T.func_attr({"activations": (0,)})
        # with T.block("root"):
        for i in range(4):
            with T.block("c"):
                vi = T.axis.spatial(4, i)
                T.reads(a[vi], b[vi])
                T.writes(c[vi])
                c[vi] = a[vi] + b[vi]

    @T.prim_func(private=True)
    def sub(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
        T.func_attr({"activations": (0,)})
        # with T.block("root"):
        for i in range(4):
            with T.block("c"):
                vi = T.axis.spatial(4, i)
                T.reads(a[vi], b[vi])
                T.writes(c[vi])
                c[vi] = a[vi] - b[vi]

    @R.function
    def main(
        x: R.Tensor((4,), dtype="float32"),
        packed_params: R.Tuple(R.Tensor((4,), dtype="float32"), R.Tensor((4,), dtype="float32")),
    ) -> R.Tuple(R.Tensor((4,), dtype="float32"), R.Tensor((4,), dtype="float32")):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            w: R.Tensor((4,), dtype="float32") = packed_params[0]
            y = R.call_tir(cls.add, (x, w), out_sinfo=R.Tensor((4,), dtype="float32"))
            z = R.call_tir(cls.add, (y, packed_params[1]), out_sinfo=R.Tensor((4,), dtype="float32"))
            u = R.call_tir(
                cls.sub, (w, R.const([1.0, 2.0, 3.0, 4.0], "float32")), out_sinfo=R.Tensor((4,), dtype="float32")
            )
            v = R.call_tir(cls.sub, (u, w), out_sinfo=R.Tensor((4,), dtype="float32"))
            R.output(z, v)
        return (z, v)
