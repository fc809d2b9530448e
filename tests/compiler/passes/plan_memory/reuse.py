# ruff: noqa
# Memory is reused after the last use of a value; results are parameters; a view and an in-place result share the memory
# of their source; scratch memory is live for one call; sizes are replaced by their bounds.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def next(var_x: T.handle, var_y: T.handle):
        r = T.int64()
        x = T.match_buffer(var_x, (r, 4), "float32")
        y = T.match_buffer(var_y, (r, 4), "float32")
        T.evaluate(0)

    @T.prim_func(private=True)
    def bump(var_x: T.handle):
        r = T.int64()
        x = T.match_buffer(var_x, (r, 2, 2), "float32")
        T.evaluate(0)

    @T.prim_func(private=True)
    def both(var_a: T.handle, var_b: T.handle, var_y: T.handle, var_z: T.handle, var_s: T.handle, by: T.int64):
        T.func_attr({"num_scratch": 1})
        r = T.int64()
        a = T.match_buffer(var_a, (r, 4), "float32")
        b = T.match_buffer(var_b, (r, 2, 2), "float32")
        y = T.match_buffer(var_y, (r, 4), "float32")
        z = T.match_buffer(var_z, (r,), "float16")
        s = T.match_buffer(var_s, (r + by,), "float32")
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["m"])):
        n = T.int64()
        m = T.int64()
        R.func_attr({"num_input": 2, "tir_var_upper_bound": {"n": 8, "m": 2}})
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.next, (x,), out_sinfo=R.Tensor((n, 4), "float32"))
            b = R.call_tir(cls.next, (a,), out_sinfo=R.Tensor((n, 4), "float32"))
            c: R.Tensor((n, 2, 2), "float32") = R.reshape(b, R.shape([n, 2, 2]))
            d = R.call_tir_inplace(cls.bump, (c,), out_sinfo=R.Tensor((n, 2, 2), "float32"), inplace_indices=(0,))
            e = R.call_tir(cls.next, (a,), out_sinfo=R.Tensor((n, 4), "float32"))
            f = R.call_tir(
                cls.both,
                (e, d),
                out_sinfo=[R.Tensor((n, 4), "float32"), R.Tensor((n,), "float16")],
                tir_vars=R.shape([m]),
            )
            g = R.call_tir(cls.next, (f[0],), out_sinfo=R.Tensor((n, 4), "float32"))
            R.output(f, g)
        return (g, f[1])


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

    @T.prim_func(private=True)
    def bump(var_x: T.handle):
        r = T.int64()
        x = T.match_buffer(var_x, (r, 2, 2), "float32")
        T.evaluate(0)

    @T.prim_func(private=True)
    def both(var_a: T.handle, var_b: T.handle, var_y: T.handle, var_z: T.handle, var_s: T.handle, by: T.int64):
        T.func_attr({"num_scratch": 1})
        r = T.int64()
        a = T.match_buffer(var_a, (r, 4), "float32")
        b = T.match_buffer(var_b, (r, 2, 2), "float32")
        y = T.match_buffer(var_y, (r, 4), "float32")
        z = T.match_buffer(var_z, (r,), "float16")
        s = T.match_buffer(var_s, (r + by,), "float32")
        T.evaluate(0)

    @R.function(pure=False)
    def main(
        x: R.Tensor(("n", 4), dtype="float32"),
        s: R.Shape(["m"]),
        out0: R.Tensor(("n", 4), dtype="float32"),
        out1: R.Tensor(("n",), dtype="float16"),
    ) -> R.Tuple():
        n = T.int64()
        m = T.int64()
        R.func_attr(
            {
                "num_input": 2,
                "tir_var_upper_bound": {"n": 8, "m": 2},
                "num_outputs": 2,
                "workspace_bytes": 448,
                "result": ({"output": 0}, {"output": 1}),
            }
        )
        cls = Module
        ws0: R.Tensor((n, 4), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([n, 4]), dtype="float32", offset=0, nbytes=128
        )
        _ = cls.next(x, ws0, R.prim_value(n))
        ws2: R.Tensor((n, 4), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([n, 4]), dtype="float32", offset=128, nbytes=128
        )
        __1 = cls.next(ws0, ws2, R.prim_value(n))
        __2 = cls.bump(ws2, R.prim_value(n))
        ws5: R.Tensor((n, 4), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([n, 4]), dtype="float32", offset=256, nbytes=128
        )
        __3 = cls.next(ws0, ws5, R.prim_value(n))
        ws7: R.Tensor((n, 4), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([n, 4]), dtype="float32", offset=0, nbytes=128
        )
        ws8: R.Tensor((n + m,), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([n + m]), dtype="float32", offset=384, nbytes=64
        )
        __4 = cls.both(ws5, ws2, ws7, out1, ws8, R.prim_value(m), R.prim_value(n))
        __5 = cls.next(ws7, out0, R.prim_value(n))
        return ()
