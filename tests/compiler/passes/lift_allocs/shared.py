# ruff: noqa
# Buffers shared by whole parallel loops become parameters, after the other buffers and before the scalars; also inside
# of a loop or a condition that all threads run. Buffers private to an iteration stay.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def two(var_x: T.handle, y: T.Buffer((8,), "float32"), scale: T.float32, at: T.int64):
        n = T.int64()
        x = T.match_buffer(var_x, (n,), "float32")
        a = T.decl_buffer((n,), "float32")
        b = T.decl_buffer((n + at,), "float32")
        for i in T.parallel(n):
            own = T.decl_buffer((4,), "float32", scope="local")
            own[0] = x[i] * scale
            a[i] = own[0]
        for i in T.parallel(n):
            b[i + at] = a[n - 1 - i]
        for i in T.parallel(8):
            y[i] = b[i + at]

    @T.prim_func(private=True)
    def steps(x: T.Buffer((3, 8), "float32"), y: T.Buffer((3, 8), "float32")):
        for t in range(3):
            row = T.decl_buffer((8,), "float32")
            for i in T.parallel(8):
                row[i] = x[t, i]
            for i in T.parallel(8):
                y[t, i] = row[7 - i]

    @T.prim_func(private=True)
    def sometimes(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32"), reverse: T.int64):
        if reverse > 0:
            row = T.decl_buffer((8,), "float32")
            for i in T.parallel(8):
                row[i] = x[i]
            for i in T.parallel(8):
                y[i] = row[7 - i]

    @T.prim_func(private=True)
    def nothing(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in T.parallel(8):
            own = T.decl_buffer((1,), "float32")
            own[0] = x[i]
            y[i] = own[0] * own[0]


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def two(
        var_x: T.handle, y: T.Buffer((8,), "float32"), var_a: T.handle, var_b: T.handle, scale: T.float32, at: T.int64
    ):
        T.func_attr({"num_scratch": 2})
        n = T.int64()
        x = T.match_buffer(var_x, (n,), "float32")
        a = T.match_buffer(var_a, (n,), "float32")
        b = T.match_buffer(var_b, (n + at,), "float32")
        for i in T.parallel(n):
            own = T.decl_buffer((4,), "float32", scope="local")
            own[0] = x[i] * scale
            a[i] = own[0]
        for i in T.parallel(n):
            b[i + at] = a[n - 1 - i]
        for i in T.parallel(8):
            y[i] = b[i + at]

    @T.prim_func(private=True)
    def steps(x: T.Buffer((3, 8), "float32"), y: T.Buffer((3, 8), "float32"), row: T.Buffer((8,), "float32")):
        T.func_attr({"num_scratch": 1})
        for t in range(3):
            for i in T.parallel(8):
                row[i] = x[t, i]
            for i in T.parallel(8):
                y[t, i] = row[7 - i]

    @T.prim_func(private=True)
    def sometimes(
        x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32"), row: T.Buffer((8,), "float32"), reverse: T.int64
    ):
        T.func_attr({"num_scratch": 1})
        if reverse > 0:
            for i in T.parallel(8):
                row[i] = x[i]
            for i in T.parallel(8):
                y[i] = row[7 - i]

    @T.prim_func(private=True)
    def nothing(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in T.parallel(8):
            own = T.decl_buffer((1,), "float32")
            own[0] = x[i]
            y[i] = own[0] * own[0]
