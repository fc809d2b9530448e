# ruff: noqa
# A buffer of symbolic or large size inside of a parallel loop becomes one with a part for each iteration of the
# outermost parallel loop; one used by a single thread becomes a parameter as it is.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def symbolic(var_x: T.handle, var_y: T.handle):
        n = T.int64()
        m = T.int64()
        x = T.match_buffer(var_x, (n, m), "float32")
        y = T.match_buffer(var_y, (n, m), "float32")
        for i in T.parallel(n):
            row = T.decl_buffer((m,), "float32")
            for j in range(m):
                row[j] = x[i, j]
            for j in range(m):
                y[i, j] = row[m - 1 - j]

    @T.prim_func(private=True)
    def nested(x: T.Buffer((2, 3, 70000), "float32"), y: T.Buffer((2, 3), "float32")):
        for i in T.parallel(2):
            for j in T.parallel(3):
                row = T.decl_buffer((70000,), "float32")
                for k in range(70000):
                    row[k] = x[i, j, k]
                y[i, j] = row[i + j]

    @T.prim_func(private=True)
    def one_thread(var_x: T.handle, y: T.Buffer((1,), "float32")):
        m = T.int64()
        x = T.match_buffer(var_x, (m,), "float32")
        for i in range(1):
            row = T.decl_buffer((m,), "float32")
            for j in range(m):
                row[j] = x[m - 1 - j]
            y[i] = row[0]

    @T.prim_func(private=True)
    def operands(x: T.Buffer((2, 16), "uint32"), y: T.Buffer((2, 70000, 4), "uint8")):
        for i in T.parallel(2):
            codes = T.decl_buffer((70000, 4), "uint8")
            T.evaluate(
                T.call_intrin(
                    "handle",
                    "intrinsic.avx512.nibbles",
                    T.call_intrin("handle", "address_of", codes[0, 0], T.int64(16), T.int64(4)),
                    T.call_intrin("handle", "address_of", x[i, 0], T.int64(1), T.int64(16)),
                    0,
                )
            )
            for j, k in T.grid(16, 4):
                y[i, j, k] = codes[j, k]


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def symbolic(var_x: T.handle, var_y: T.handle, var_row: T.handle):
        T.func_attr({"num_scratch": 1})
        n = T.int64()
        m = T.int64()
        x = T.match_buffer(var_x, (n, m), "float32")
        y = T.match_buffer(var_y, (n, m), "float32")
        row = T.match_buffer(var_row, (n, m), "float32")
        for i in T.parallel(n):
            for j in range(m):
                row[i, j] = x[i, j]
            for j in range(m):
                y[i, j] = row[i, m - 1 - j]

    @T.prim_func(private=True)
    def nested(
        x: T.Buffer((2, 3, 70000), "float32"), y: T.Buffer((2, 3), "float32"), row: T.Buffer((2, 70000), "float32")
    ):
        T.func_attr({"num_scratch": 1})
        for i in T.parallel(2):
            for j in T.parallel(3):
                for k in range(70000):
                    row[i, k] = x[i, j, k]
                y[i, j] = row[i, i + j]

    @T.prim_func(private=True)
    def one_thread(var_x: T.handle, y: T.Buffer((1,), "float32"), var_row: T.handle):
        T.func_attr({"num_scratch": 1})
        m = T.int64()
        x = T.match_buffer(var_x, (m,), "float32")
        row = T.match_buffer(var_row, (m,), "float32")
        for i in range(1):
            for j in range(m):
                row[j] = x[m - 1 - j]
            y[i] = row[0]

    @T.prim_func(private=True)
    def operands(
        x: T.Buffer((2, 16), "uint32"), y: T.Buffer((2, 70000, 4), "uint8"), codes: T.Buffer((2, 70000, 4), "uint8")
    ):
        T.func_attr({"num_scratch": 1})
        for i in T.parallel(2):
            T.evaluate(
                T.call_intrin(
                    "handle",
                    "intrinsic.avx512.nibbles",
                    T.call_intrin("handle", "address_of", codes[i, 0, 0], T.int64(1), T.int64(16), T.int64(4)),
                    T.call_intrin("handle", "address_of", x[i, 0], T.int64(1), T.int64(16)),
                    0,
                )
            )
            for j, k in T.grid(16, 4):
                y[i, j, k] = codes[i, j, k]
