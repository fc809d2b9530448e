# ruff: noqa
# Operators become calls of tensor functions; equal ones are shared for all names of sizes; scalars and symbolic
# arguments become constants or trailing parameters; views and existing calls stay.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def own(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("m", 4), "float32"), c: R.Tensor((4,), "float32")):
        n = T.int64()
        m = T.int64()
        cls = Module
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.nn.relu(y)
            d = R.multiply(a, R.const(2.0, "float32"))
            e = R.multiply(d, c)
            f: R.Tensor((n, 2, 2), "float32") = R.reshape(e, R.shape([n, 2, 2]))
            g = R.split(b, indices_or_sections=2, axis=1)
            h = R.concat((g[1], g[0]), axis=1)
            i = R.full(R.shape([n, m]), R.const(1.0, "float32"), dtype="float32")
            j = R.call_tir(cls.own, (c,), out_sinfo=R.Tensor((4,), "float32"))
            k = R.strided_slice(x, axes=[0], begin=[0], end=[2])
            R.output(f, h, i, j, k)
        return (f, h, i, j, k)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def own(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        T.evaluate(0)

    @R.function
    def main(
        x: R.Tensor(("n", 4), dtype="float32"),
        y: R.Tensor(("m", 4), dtype="float32"),
        c: R.Tensor((4,), dtype="float32"),
    ) -> R.Tuple(
        R.Tensor(("n", 2, 2), dtype="float32"),
        R.Tensor(("m", 4), dtype="float32"),
        R.Tensor(("n", "m"), dtype="float32"),
        R.Tensor((4,), dtype="float32"),
        R.Tensor(("T.min(2, n)", 4), dtype="float32"),
    ):
        n = T.int64()
        m = T.int64()
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.relu, (x,), out_sinfo=R.Tensor((n, 4), dtype="float32"))
            b = R.call_tir(cls.relu, (y,), out_sinfo=R.Tensor((m, 4), dtype="float32"))
            d = R.call_tir(cls.multiply, (a,), out_sinfo=R.Tensor((n, 4), dtype="float32"))
            e = R.call_tir(cls.multiply1, (d, c), out_sinfo=R.Tensor((n, 4), dtype="float32"))
            f: R.Tensor((n, 2, 2), dtype="float32") = R.reshape(e, R.shape([n, 2, 2]))
            g = R.call_tir(
                cls.split, (b,), out_sinfo=[R.Tensor((m, 2), dtype="float32"), R.Tensor((m, 2), dtype="float32")]
            )
            h_in0: R.Tensor((m, 2), dtype="float32") = g[1]
            h_in1: R.Tensor((m, 2), dtype="float32") = g[0]
            h = R.call_tir(cls.concat, (h_in0, h_in1), out_sinfo=R.Tensor((m, 4), dtype="float32"))
            i = R.call_tir(cls.full, (), out_sinfo=R.Tensor((n, m), dtype="float32"))
            j = R.call_tir(cls.own, (c,), out_sinfo=R.Tensor((4,), dtype="float32"))
            k = R.call_tir(cls.strided_slice, (x,), out_sinfo=R.Tensor((T.min(2, n), 4), dtype="float32"))
            R.output(f, h, i, j, k)
        return (f, h, i, j, k)

    @T.prim_func(private=True)
    def relu(var_x: T.handle, var_relu: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 4), "float32")
        relu = T.match_buffer(var_relu, (n, 4), "float32")
        # with T.block("root"):
        for i0, i1 in T.grid(n, 4):
            with T.block("relu"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1])
                T.writes(relu[v_i0, v_i1])
                relu[v_i0, v_i1] = T.max(T.float32(0.0), x[v_i0, v_i1])

    @T.prim_func(private=True)
    def multiply(var_x: T.handle, var_multiply: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 4), "float32")
        multiply = T.match_buffer(var_multiply, (n, 4), "float32")
        # with T.block("root"):
        for i0, i1 in T.grid(n, 4):
            with T.block("multiply"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1])
                T.writes(multiply[v_i0, v_i1])
                multiply[v_i0, v_i1] = x[v_i0, v_i1] * T.float32(2.0)

    @T.prim_func(private=True)
    def multiply1(var_x: T.handle, y: T.Buffer((4,), "float32"), var_multiply: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 4), "float32")
        multiply = T.match_buffer(var_multiply, (n, 4), "float32")
        # with T.block("root"):
        for i0, i1 in T.grid(n, 4):
            with T.block("multiply"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1], y[v_i1])
                T.writes(multiply[v_i0, v_i1])
                multiply[v_i0, v_i1] = x[v_i0, v_i1] * y[v_i1]

    @T.prim_func(private=True)
    def split(var_x: T.handle, var_split: T.handle, var_split_1: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 2})
        m = T.int64()
        x = T.match_buffer(var_x, (m, 4), "float32")
        split = T.match_buffer(var_split, (m, 2), "float32")
        split_1 = T.match_buffer(var_split_1, (m, 2), "float32")
        # with T.block("root"):
        for i0, i1 in T.grid(m, 2):
            with T.block("split"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1])
                T.writes(split[v_i0, v_i1])
                split[v_i0, v_i1] = x[v_i0, v_i1]
        for i0, i1 in T.grid(m, 2):
            with T.block("split_1"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, 2 + v_i1])
                T.writes(split_1[v_i0, v_i1])
                split_1[v_i0, v_i1] = x[v_i0, 2 + v_i1]

    @T.prim_func(private=True)
    def concat(var_tensors0: T.handle, var_tensors1: T.handle, var_concat: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        m = T.int64()
        tensors0 = T.match_buffer(var_tensors0, (m, 2), "float32")
        tensors1 = T.match_buffer(var_tensors1, (m, 2), "float32")
        concat = T.match_buffer(var_concat, (m, 4), "float32")
        # with T.block("root"):
        for i0, i1 in T.grid(m, 4):
            with T.block("concat"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(tensors0[v_i0, v_i1], tensors1[v_i0, v_i1 - 2])
                T.writes(concat[v_i0, v_i1])
                concat[v_i0, v_i1] = T.if_then_else(v_i1 < 2, tensors0[v_i0, v_i1], tensors1[v_i0, v_i1 - 2])

    @T.prim_func(private=True)
    def full(var_full: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        m = T.int64()
        full = T.match_buffer(var_full, (n, m), "float32")
        # with T.block("root"):
        for _0, _1 in T.grid(n, m):
            with T.block("full"):
                v__0, v__1 = T.axis.remap("SS", [_0, _1])
                T.reads()
                T.writes(full[v__0, v__1])
                full[v__0, v__1] = T.float32(1.0)

    @T.prim_func(private=True)
    def strided_slice(var_x: T.handle, var_strided_slice: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 4), "float32")
        strided_slice = T.match_buffer(var_strided_slice, (T.min(2, n), 4), "float32")
        # with T.block("root"):
        for i0, i1 in T.grid(T.min(2, n), 4):
            with T.block("strided_slice"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1])
                T.writes(strided_slice[v_i0, v_i1])
                strided_slice[v_i0, v_i1] = x[v_i0, v_i1]
