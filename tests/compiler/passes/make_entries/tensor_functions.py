# ruff: noqa
# A public tensor function is wrapped in a graph function of its name, which calls it on its parameters, outputs
# included; a private one stays. A parameter with a layout is passed as it is stored.
@I.ir_module
class Module:
    @T.prim_func
    def scale(var_x: T.handle, factor: T.float32, var_y: T.handle):
        T.func_attr({"global_symbol": "scale"})
        n = T.int64()
        x = T.match_buffer(var_x, (n,), "float32")
        y = T.match_buffer(var_y, (n,), "float32")
        for i in range(n):
            with T.block("y"):
                vi = T.axis.spatial(n, i)
                y[vi] = x[vi] * factor

    @T.prim_func
    def copy(x: T.Buffer((2, 16), "float32"), y: T.Buffer((20,), "float32")):
        T.func_attr(
            {
                "global_symbol": "copy",
                "layouts": {"0": T.index_map(lambda i: (i // 16, i % 16))},
                "tir.is_scheduled": True,
            }
        )
        for i in T.parallel(20):
            with T.block("y"):
                vi = T.axis.spatial(20, i)
                y[vi] = x[vi // 16, vi % 16]

    @T.prim_func(private=True)
    def own(x: T.Buffer((4,), "float32")):
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return x


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func
    def scale_kernel(var_x: T.handle, factor: T.float32, var_y: T.handle):
        n = T.int64()
        x = T.match_buffer(var_x, (n,), "float32")
        y = T.match_buffer(var_y, (n,), "float32")
        # with T.block("root"):
        for i in range(n):
            with T.block("y"):
                vi = T.axis.spatial(n, i)
                T.reads(x[vi])
                T.writes(y[vi])
                y[vi] = x[vi] * factor

    @T.prim_func
    def copy_kernel(x: T.Buffer((2, 16), "float32"), y: T.Buffer((20,), "float32")):
        T.func_attr({"layouts": {"0": T.index_map(lambda i0: (i0 // 16, i0 % 16))}, "tir.is_scheduled": True})
        # with T.block("root"):
        for i in T.parallel(20):
            with T.block("y"):
                vi = T.axis.spatial(20, i)
                T.reads(x[vi // 16, vi % 16])
                T.writes(y[vi])
                y[vi] = x[vi // 16, vi % 16]

    @T.prim_func(private=True)
    def own(x: T.Buffer((4,), "float32")):
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
        return x

    @T.prim_func
    def copy_kernel_stored(x: T.Buffer((2, 16), "float32"), y: T.Buffer((20,), "float32")):
        T.func_attr({"global_symbol": "copy_kernel", "tir.is_scheduled": True})
        # with T.block("root"):
        for i in T.parallel(20):
            with T.block("y"):
                vi = T.axis.spatial(20, i)
                T.reads(x[vi // 16, vi % 16])
                T.writes(y[vi])
                y[vi] = x[vi // 16, vi % 16]

    @R.function(pure=False)
    def scale(
        x: R.Tensor(("n",), dtype="float32"),
        factor_1: R.Prim("float32", value="factor"),
        y: R.Tensor(("n",), dtype="float32"),
    ) -> R.Tuple():
        n = T.int64()
        factor = T.float32()
        cls = Module
        written = R.call_tir_inplace(
            cls.scale_kernel,
            (x, y),
            out_sinfo=[R.Tensor((n,), dtype="float32")],
            inplace_indices=(1,),
            tir_vars=R.shape([factor]),
        )
        return ()

    @R.function(pure=False)
    def copy(x: R.Tensor((2, 16), dtype="float32"), y: R.Tensor((20,), dtype="float32")) -> R.Tuple():
        cls = Module
        written = R.call_tir_inplace(
            cls.copy_kernel_stored, (x, y), out_sinfo=[R.Tensor((20,), dtype="float32")], inplace_indices=(1,)
        )
        return ()
