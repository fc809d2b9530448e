# ruff: noqa
# Unbounded sizes: memory is reused by values of the same size, at symbolic offsets.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def next(var_x: T.handle, var_y: T.handle):
        r = T.int64()
        x = T.match_buffer(var_x, (r, 4), "float32")
        y = T.match_buffer(var_y, (r, 4), "float32")
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("m", 4), "float32"), w: R.Tensor((5, 4), "float32")):
        n = T.int64()
        m = T.int64()
        R.func_attr({"num_input": 3})
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.next, (x,), out_sinfo=R.Tensor((n, 4), "float32"))
            b = R.call_tir(cls.next, (y,), out_sinfo=R.Tensor((m, 4), "float32"))
            c = R.call_tir(cls.next, (w,), out_sinfo=R.Tensor((5, 4), "float32"))
            d = R.call_tir(cls.next, (a,), out_sinfo=R.Tensor((n, 4), "float32"))
            e = R.call_tir(cls.next, (d,), out_sinfo=R.Tensor((n, 4), "float32"))
            f = R.call_tir(cls.next, (c,), out_sinfo=R.Tensor((5, 4), "float32"))
            g = R.call_tir(cls.next, (b,), out_sinfo=R.Tensor((m, 4), "float32"))
            h = R.call_tir(cls.next, (e,), out_sinfo=R.Tensor((n, 4), "float32"))
            R.output(f, g, h)
        return (f, g, h)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def next(var_x: T.handle, var_y: T.handle):
        r = T.int64()
        x = T.match_buffer(var_x, (r, 4), "float32")
        y = T.match_buffer(var_y, (r, 4), "float32")
        T.evaluate(0)

    @R.function(pure=False)
    def main(
        x: R.Tensor(("n", 4), dtype="float32"),
        y: R.Tensor(("m", 4), dtype="float32"),
        w: R.Tensor((5, 4), dtype="float32"),
        out0: R.Tensor((5, 4), dtype="float32"),
        out1: R.Tensor(("m", 4), dtype="float32"),
        out2: R.Tensor(("n", 4), dtype="float32"),
    ) -> R.Tuple():
        n = T.int64()
        m = T.int64()
        R.func_attr(
            {
                "num_input": 3,
                "num_outputs": 3,
                "workspace_bytes": (n + 3) // 4 * 128 + (m + 3) // 4 * 64 + 128,
                "result": ({"output": 0}, {"output": 1}, {"output": 2}),
            }
        )
        cls = Module
        ws0: R.Tensor((n, 4), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([n, 4]), dtype="float32", offset=T.int64(128), nbytes=(n + 3) // 4 * 64
        )
        _ = cls.next(x, ws0, R.prim_value(n))
        ws2: R.Tensor((m, 4), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([m, 4]), dtype="float32", offset=(n + 3) // 4 * 64 + 128, nbytes=(m + 3) // 4 * 64
        )
        __1 = cls.next(y, ws2, R.prim_value(m))
        ws4: R.Tensor((5, 4), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([5, 4]), dtype="float32", offset=0, nbytes=128
        )
        __2 = cls.next(w, ws4, R.prim_value(T.int64(5)))
        ws6: R.Tensor((n, 4), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([n, 4]),
            dtype="float32",
            offset=(n + 3) // 4 * 64 + (m + 3) // 4 * 64 + 128,
            nbytes=(n + 3) // 4 * 64,
        )
        __3 = cls.next(ws0, ws6, R.prim_value(n))
        ws8: R.Tensor((n, 4), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([n, 4]), dtype="float32", offset=T.int64(128), nbytes=(n + 3) // 4 * 64
        )
        __4 = cls.next(ws6, ws8, R.prim_value(n))
        __5 = cls.next(ws4, out0, R.prim_value(T.int64(5)))
        __6 = cls.next(ws2, out1, R.prim_value(m))
        __7 = cls.next(ws8, out2, R.prim_value(n))
        return ()
