# ruff: noqa
# Bodies in order; intermediates become buffers of the function; a callee used twice gets distinct names.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def dequantize(q: T.Buffer((16, 8), "int8"), s: T.Buffer((16, 2), "float16"), w: T.Buffer((16, 8), "float32")):
        T.func_attr({"op_pattern": "injective"})
        for i, j in T.grid(16, 8):
            with T.block("w"):
                vi, vj = T.axis.remap("SS", [i, j])
                w[vi, vj] = T.Cast("float32", q[vi, vj]) * T.Cast("float32", s[vi, vj // 4])

    @T.prim_func(private=True)
    def linear(var_x: T.handle, w: T.Buffer((16, 8), "float32"), var_y: T.handle):
        T.func_attr({"op_pattern": "matmul"})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 8), "float32")
        y = T.match_buffer(var_y, (n, 16), "float32")
        for i, j, k in T.grid(n, 16, 8):
            with T.block("y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vj, vk]

    @T.prim_func(private=True)
    def add(var_a: T.handle, var_b: T.handle, var_c: T.handle):
        T.func_attr({"op_pattern": "elementwise"})
        n = T.int64()
        a = T.match_buffer(var_a, (n, 16), "float32")
        b = T.match_buffer(var_b, (n, 16), "float32")
        c = T.match_buffer(var_c, (n, 16), "float32")
        for i, j in T.grid(n, 16):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = a[vi, vj] + b[vi, vj]

    @R.function(private=True)
    def fused_dequantize_linear_add_add(
        q: R.Tensor((16, 8), "int8"),
        s: R.Tensor((16, 2), "float16"),
        x: R.Tensor(("n", 8), "float32"),
        a: R.Tensor(("n", 16), "float32"),
    ):
        R.func_attr({"Primitive": 1})
        n = T.int64()
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.dequantize, (q, s), out_sinfo=R.Tensor((16, 8), "float32"))
            lv1 = R.call_tir(cls.linear, (x, lv), out_sinfo=R.Tensor((n, 16), "float32"))
            lv2 = R.call_tir(cls.add, (a, lv1), out_sinfo=R.Tensor((n, 16), "float32"))
            gv = R.call_tir(cls.add, (lv2, a), out_sinfo=R.Tensor((n, 16), "float32"))
            R.output(gv)
        return gv

    @R.function
    def main(
        x: R.Tensor((1, 8), "float32"),
        r: R.Tensor((1, 16), "float32"),
        q: R.Tensor((16, 8), "int8"),
        s: R.Tensor((16, 2), "float16"),
    ):
        cls = Module
        with R.dataflow():
            gv: R.Tensor((1, 16), "float32") = cls.fused_dequantize_linear_add_add(q, s, x, r)
            R.output(gv)
        return gv


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def dequantize(q: T.Buffer((16, 8), "int8"), s: T.Buffer((16, 2), "float16"), w: T.Buffer((16, 8), "float32")):
        T.func_attr({"op_pattern": "injective"})
        # with T.block("root"):
        for i, j in T.grid(16, 8):
            with T.block("w"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(q[vi, vj], s[vi, vj // 4])
                T.writes(w[vi, vj])
                w[vi, vj] = T.Cast("float32", q[vi, vj]) * T.Cast("float32", s[vi, vj // 4])

    @T.prim_func(private=True)
    def linear(var_x: T.handle, w: T.Buffer((16, 8), "float32"), var_y: T.handle):
        T.func_attr({"op_pattern": "matmul"})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 8), "float32")
        y = T.match_buffer(var_y, (n, 16), "float32")
        # with T.block("root"):
        for i, j, k in T.grid(n, 16, 8):
            with T.block("y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(x[vi, vk], w[vj, vk])
                T.writes(y[vi, vj])
                with T.init():
                    y[vi, vj] = T.float32(0.0)
                y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vj, vk]

    @T.prim_func(private=True)
    def add(var_a: T.handle, var_b: T.handle, var_c: T.handle):
        T.func_attr({"op_pattern": "elementwise"})
        n = T.int64()
        a = T.match_buffer(var_a, (n, 16), "float32")
        b = T.match_buffer(var_b, (n, 16), "float32")
        c = T.match_buffer(var_c, (n, 16), "float32")
        # with T.block("root"):
        for i, j in T.grid(n, 16):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj], b[vi, vj])
                T.writes(c[vi, vj])
                c[vi, vj] = a[vi, vj] + b[vi, vj]

    @T.prim_func(private=True)
    def fused_dequantize_linear_add_add(
        q: T.Buffer((16, 8), "int8"),
        s: T.Buffer((16, 2), "float16"),
        var_x: T.handle,
        var_a: T.handle,
        var_c_1: T.handle,
    ):
        T.func_attr({"tir.noalias": True, "op_pattern": "matmul", "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 8), "float32")
        a = T.match_buffer(var_a, (n, 16), "float32")
        c_1 = T.match_buffer(var_c_1, (n, 16), "float32")
        # with T.block("root"):
        w = T.alloc_buffer((16, 8), "float32")
        y = T.alloc_buffer((n, 16), "float32")
        c = T.alloc_buffer((n, 16), "float32")
        for i, j in T.grid(16, 8):
            with T.block("w"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(q[vi, vj], s[vi, vj // 4])
                T.writes(w[vi, vj])
                w[vi, vj] = T.Cast("float32", q[vi, vj]) * T.Cast("float32", s[vi, vj // 4])
        for i, j, k in T.grid(n, 16, 8):
            with T.block("y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(x[vi, vk], w[vj, vk])
                T.writes(y[vi, vj])
                with T.init():
                    y[vi, vj] = T.float32(0.0)
                y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vj, vk]
        for i, j in T.grid(n, 16):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj], y[vi, vj])
                T.writes(c[vi, vj])
                c[vi, vj] = a[vi, vj] + y[vi, vj]
        for i, j in T.grid(n, 16):
            with T.block("c_1"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(c[vi, vj], a[vi, vj])
                T.writes(c_1[vi, vj])
                c_1[vi, vj] = c[vi, vj] + a[vi, vj]

    @R.function
    def main(
        x: R.Tensor((1, 8), dtype="float32"),
        r: R.Tensor((1, 16), dtype="float32"),
        q: R.Tensor((16, 8), dtype="int8"),
        s: R.Tensor((16, 2), dtype="float16"),
    ) -> R.Tensor((1, 16), dtype="float32"):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(
                cls.fused_dequantize_linear_add_add, (q, s, x, r), out_sinfo=R.Tensor((1, 16), dtype="float32")
            )
            R.output(gv)
        return gv
