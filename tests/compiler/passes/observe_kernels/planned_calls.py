# ruff: noqa
# An observer is called after each kernel, with the inputs and the results, but not with scratch memory and sizes; weights
# are passed as they are. Calls of registered functions are not observed.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def total(
        var_x: T.handle, var_y: T.handle, y: T.Buffer((1,), "float32"), scratch: T.Buffer((4,), "float32"), n: T.int64
    ):
        T.func_attr({"num_outputs": 1, "num_scratch": 1})
        x = T.match_buffer(var_x, (n,), "float32")
        w = T.match_buffer(var_y, (n,), "float32")
        for i in range(n):
            y[0] = y[0] + x[i] * w[i]

    @R.function(pure=False)
    def main(
        x: R.Tensor(("n",), "float32"), w: R.Tuple(R.Tensor(("n",), "float32")), out0: R.Tensor((1,), "float32")
    ) -> R.Tuple:
        n = T.int64()
        R.func_attr({"num_input": 1, "num_outputs": 1, "workspace_bytes": 128})
        cls = Module
        ws0: R.Tensor((1,), "float32") = R.builtin.alloc_tensor(R.shape([1]), dtype="float32", offset=0, nbytes=64)
        ws1: R.Tensor((4,), "float32") = R.builtin.alloc_tensor(R.shape([4]), dtype="float32", offset=64, nbytes=64)
        _ = cls.total(x, w[0], ws0, ws1, n)
        _ = R.call_packed("show", ws0)
        _ = cls.total(x, x, out0, ws1, n)
        return R.tuple()


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def total(
        var_x: T.handle, var_w: T.handle, y: T.Buffer((1,), "float32"), scratch: T.Buffer((4,), "float32"), n: T.int64
    ):
        T.func_attr({"num_outputs": 1, "num_scratch": 1})
        x = T.match_buffer(var_x, (n,), "float32")
        w = T.match_buffer(var_w, (n,), "float32")
        for i in range(n):
            y[0] = y[0] + x[i] * w[i]

    @R.function(pure=False)
    def main(
        x: R.Tensor(("n",), dtype="float32"),
        w: R.Tuple(R.Tensor(("n",), dtype="float32")),
        out0: R.Tensor((1,), dtype="float32"),
    ) -> R.Tuple():
        n = T.int64()
        R.func_attr({"num_input": 1, "num_outputs": 1, "workspace_bytes": 128})
        cls = Module
        _ = R.call_packed(
            "mlc.observe_kernel", R.str("main"), R.str(""), R.prim_value(T.int64(-1)), R.prim_value(T.int64(0))
        )
        ws0: R.Tensor((1,), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([1]), dtype="float32", offset=0, nbytes=64
        )
        ws1: R.Tensor((4,), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([4]), dtype="float32", offset=64, nbytes=64
        )
        __1 = cls.total(x, w[0], ws0, ws1, R.prim_value(n))
        __2 = R.call_packed(
            "mlc.observe_kernel",
            R.str("main"),
            R.str("total"),
            R.prim_value(T.int64(0)),
            R.prim_value(T.int64(1)),
            x,
            w[0],
            ws0,
        )
        __3 = R.call_packed("show", ws0)
        __4 = cls.total(x, x, out0, ws1, R.prim_value(n))
        __5 = R.call_packed(
            "mlc.observe_kernel",
            R.str("main"),
            R.str("total"),
            R.prim_value(T.int64(1)),
            R.prim_value(T.int64(1)),
            x,
            x,
            out0,
        )
        return ()
