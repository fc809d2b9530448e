# ruff: noqa
# Patterns of functions of one block: by the indices of its inputs and its reduction.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def same_index(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = T.exp(a[vi, vj]) + b[vi, vj]

    @T.prim_func(private=True)
    def bias(a: T.Buffer((4, 8), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = a[vi, vj] + b[vj]

    @T.prim_func(private=True)
    def size_one_axis(a: T.Buffer((4, 1), "float32"), c: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = a[vi, 0]

    @T.prim_func(private=True)
    def first_row(a: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = a[0, vj]

    @T.prim_func(private=True)
    def transpose(a: T.Buffer((8, 4), "float32"), c: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = a[vj, vi]

    @T.prim_func(private=True)
    def take(table: T.Buffer((100, 8), "float32"), ids: T.Buffer((4,), "int32"), c: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = table[ids[vi], vj]

    @T.prim_func(private=True)
    def position(c: T.Buffer((4, 8), "int64")):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = vi * 8 + vj

    @T.prim_func(private=True)
    def linear(x: T.Buffer((4, 8), "float16"), w: T.Buffer((16, 8), "float16"), y: T.Buffer((4, 16), "float32")):
        for i, j, k in T.grid(4, 16, 8):
            with T.block("y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + T.Cast("float32", x[vi, vk]) * T.Cast("float32", w[vj, vk])

    @T.prim_func(private=True)
    def sum_of_squares(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 8):
            with T.block("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] = y[vi] + x[vi, vk] * x[vi, vk]

    @T.prim_func(private=True)
    def maximum(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 8):
            with T.block("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = T.float32(-3e38)
                y[vi] = T.max(y[vi], x[vi, vk])

    @T.prim_func(private=True)
    def scatter(a: T.Buffer((4, 8), "float32"), ids: T.Buffer((4,), "int32"), c: T.Buffer((100, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[ids[vi], vj] = a[vi, vj]

    @T.prim_func(private=True)
    def scheduled(a: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"tir.is_scheduled": True})
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = T.exp(a[vi, vj])

    @T.prim_func(private=True)
    def in_place(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("a"):
                vi, vj = T.axis.remap("SS", [i, j])
                a[vi, vj] = T.exp(b[vi, vj])

    @T.prim_func(private=True)
    def given(a: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "opaque"})
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = T.exp(a[vi, vj])

    @R.function
    def main(a: R.Tensor((4, 8), "float32"), b: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        cls = Module
        gv = R.call_tir_inplace(cls.in_place, (a, b), out_sinfo=R.Tensor((4, 8), "float32"), inplace_indices=[0])
        return gv


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def same_index(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        # with T.block("root"):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj], b[vi, vj])
                T.writes(c[vi, vj])
                c[vi, vj] = T.exp(a[vi, vj]) + b[vi, vj]

    @T.prim_func(private=True)
    def bias(a: T.Buffer((4, 8), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "broadcast"})
        # with T.block("root"):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj], b[vj])
                T.writes(c[vi, vj])
                c[vi, vj] = a[vi, vj] + b[vj]

    @T.prim_func(private=True)
    def size_one_axis(a: T.Buffer((4, 1), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "broadcast"})
        # with T.block("root"):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, 0])
                T.writes(c[vi, vj])
                c[vi, vj] = a[vi, 0]

    @T.prim_func(private=True)
    def first_row(a: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "injective"})
        # with T.block("root"):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[0, vj])
                T.writes(c[vi, vj])
                c[vi, vj] = a[0, vj]

    @T.prim_func(private=True)
    def transpose(a: T.Buffer((8, 4), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "injective"})
        # with T.block("root"):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vj, vi])
                T.writes(c[vi, vj])
                c[vi, vj] = a[vj, vi]

    @T.prim_func(private=True)
    def take(table: T.Buffer((100, 8), "float32"), ids: T.Buffer((4,), "int32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "injective"})
        # with T.block("root"):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(table[0:100, vj], ids[vi])
                T.writes(c[vi, vj])
                c[vi, vj] = table[ids[vi], vj]

    @T.prim_func(private=True)
    def position(c: T.Buffer((4, 8), "int64")):
        T.func_attr({"op_pattern": "elementwise"})
        # with T.block("root"):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads()
                T.writes(c[vi, vj])
                c[vi, vj] = vi * 8 + vj

    @T.prim_func(private=True)
    def linear(x: T.Buffer((4, 8), "float16"), w: T.Buffer((16, 8), "float16"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"op_pattern": "matmul"})
        # with T.block("root"):
        for i, j, k in T.grid(4, 16, 8):
            with T.block("y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(x[vi, vk], w[vj, vk])
                T.writes(y[vi, vj])
                with T.init():
                    y[vi, vj] = T.float32(0.0)
                y[vi, vj] = y[vi, vj] + T.Cast("float32", x[vi, vk]) * T.Cast("float32", w[vj, vk])

    @T.prim_func(private=True)
    def sum_of_squares(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4,), "float32")):
        T.func_attr({"op_pattern": "reduction"})
        # with T.block("root"):
        for i, k in T.grid(4, 8):
            with T.block("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(x[vi, vk])
                T.writes(y[vi])
                with T.init():
                    y[vi] = T.float32(0.0)
                y[vi] = y[vi] + x[vi, vk] * x[vi, vk]

    @T.prim_func(private=True)
    def maximum(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4,), "float32")):
        T.func_attr({"op_pattern": "reduction"})
        # with T.block("root"):
        for i, k in T.grid(4, 8):
            with T.block("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(x[vi, vk])
                T.writes(y[vi])
                with T.init():
                    y[vi] = T.float32(-3e38)
                y[vi] = T.max(y[vi], x[vi, vk])

    @T.prim_func(private=True)
    def scatter(a: T.Buffer((4, 8), "float32"), ids: T.Buffer((4,), "int32"), c: T.Buffer((100, 8), "float32")):
        T.func_attr({"op_pattern": "opaque"})
        # with T.block("root"):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj], ids[vi])
                T.writes(c[0:100, vj])
                c[ids[vi], vj] = a[vi, vj]

    @T.prim_func(private=True)
    def scheduled(a: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"tir.is_scheduled": True, "op_pattern": "opaque"})
        # with T.block("root"):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj])
                T.writes(c[vi, vj])
                c[vi, vj] = T.exp(a[vi, vj])

    @T.prim_func(private=True)
    def in_place(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "opaque"})
        # with T.block("root"):
        for i, j in T.grid(4, 8):
            with T.block("a"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(b[vi, vj])
                T.writes(a[vi, vj])
                a[vi, vj] = T.exp(b[vi, vj])

    @T.prim_func(private=True)
    def given(a: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "opaque"})
        # with T.block("root"):
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj])
                T.writes(c[vi, vj])
                c[vi, vj] = T.exp(a[vi, vj])

    @R.function
    def main(a: R.Tensor((4, 8), dtype="float32"), b: R.Tensor((4, 8), dtype="float32")) -> R.Tensor(
        (4, 8), dtype="float32"
    ):
        cls = Module
        gv = R.call_tir_inplace(cls.in_place, (a, b), out_sinfo=R.Tensor((4, 8), dtype="float32"), inplace_indices=(0,))
        return gv
