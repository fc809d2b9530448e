# ruff: noqa
# The last step of a sum, a store and an unrolled loop is peeled; both guards of the next loop fail first after 2 steps.
# Unchanged: a guard that always holds, one of another loop, one without lanes, a size that is loaded.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def f(
        a: T.Buffer((4, 21), "float32"),
        b: T.Buffer((4, 32), "float32"),
        out: T.Buffer((4, 32), "float32"),
        n: T.Buffer((1,), "int64"),
    ):
        acc = T.decl_buffer((8,), "float32")
        for j in T.vectorized(8):
            acc[j] = T.float32(0.0)
        for row in range(4):
            for k in range(3):
                for j in T.vectorized(8):
                    acc[j] = acc[j] + T.if_then_else(k * 8 + j < 21, a[row, k * 8 + j], T.float32(0.0))
            for k in range(3):
                for j in T.vectorized(8):
                    if k * 8 + j < 21:
                        out[row, k * 8 + j] = a[row, k * 8 + j] * acc[j]
            for k in range(2):
                for i in T.unroll(2):
                    for j in T.vectorized(8):
                        if k * 16 + i * 8 + j < 20 and row < 3:
                            out[row, k * 16 + i * 8 + j] = a[row, k * 16 + i * 8 + j]
                        else:
                            out[row, k * 16 + i * 8 + j] = T.float32(1.0)
            for k in range(4):
                for j in T.vectorized(8):
                    if k * 8 + j < 21 and k * 8 + j < 18:
                        b[row, k * 8 + j] = T.if_then_else(k * 8 + j < 26, a[row, k * 8 + j], T.float32(2.0))
            for k in range(4):
                for j in T.vectorized(8):
                    if k * 8 + j < 32:
                        b[row, k * 8 + j] = out[row, k * 8 + j]
            for k in range(4):
                for j in T.vectorized(8):
                    if row * 8 + j < 20:
                        b[row, k * 8 + j] = out[row, k * 8 + j]
            for k in range(32):
                if k < 21:
                    b[row, k] = a[row, k]
            for k in range(4):
                for j in T.vectorized(8):
                    if k * 8 + j < n[0]:
                        b[row, k * 8 + j] = out[row, k * 8 + j]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def f(
        a: T.Buffer((4, 21), "float32"),
        b: T.Buffer((4, 32), "float32"),
        out: T.Buffer((4, 32), "float32"),
        n: T.Buffer((1,), "int64"),
    ):
        acc = T.decl_buffer((8,), "float32")
        for j in T.vectorized(8):
            acc[j] = T.float32(0.0)
        for row in range(4):
            for k in range(2):
                for j in T.vectorized(8):
                    acc[j] = acc[j] + a[row, k * 8 + j]
            for j in T.vectorized(8):
                acc[j] = acc[j] + T.if_then_else(16 + j < 21, a[row, 16 + j], T.float32(0.0))
            for k in range(2):
                for j in T.vectorized(8):
                    out[row, k * 8 + j] = a[row, k * 8 + j] * acc[j]
            for j in T.vectorized(8):
                if 16 + j < 21:
                    out[row, 16 + j] = a[row, 16 + j] * acc[j]
            for k in range(1):
                for i in T.unroll(2):
                    for j in T.vectorized(8):
                        if row < 3:
                            out[row, k * 16 + i * 8 + j] = a[row, k * 16 + i * 8 + j]
                        else:
                            out[row, k * 16 + i * 8 + j] = T.float32(1.0)
            for i in T.unroll(2):
                for j in T.vectorized(8):
                    if 16 + i * 8 + j < 20 and row < 3:
                        out[row, 16 + i * 8 + j] = a[row, 16 + i * 8 + j]
                    else:
                        out[row, 16 + i * 8 + j] = T.float32(1.0)
            for k in range(2):
                for j in T.vectorized(8):
                    b[row, k * 8 + j] = a[row, k * 8 + j]
            for k in range(2):
                for j in T.vectorized(8):
                    if (k + 2) * 8 + j < 21 and (k + 2) * 8 + j < 18:
                        b[row, (k + 2) * 8 + j] = T.if_then_else(
                            (k + 2) * 8 + j < 26, a[row, (k + 2) * 8 + j], T.float32(2.0)
                        )
            for k in range(4):
                for j in T.vectorized(8):
                    if k * 8 + j < 32:
                        b[row, k * 8 + j] = out[row, k * 8 + j]
            for k in range(4):
                for j in T.vectorized(8):
                    if row * 8 + j < 20:
                        b[row, k * 8 + j] = out[row, k * 8 + j]
            for k in range(32):
                if k < 21:
                    b[row, k] = a[row, k]
            for k in range(4):
                for j in T.vectorized(8):
                    if k * 8 + j < n[0]:
                        b[row, k * 8 + j] = out[row, k * 8 + j]
