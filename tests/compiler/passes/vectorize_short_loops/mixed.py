# ruff: noqa
# Loops of up to 8 consecutive float32 become lanes; longer ones, strided, gathered or dependent accesses do not.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def f(
        a: T.Buffer((16, 8), "float32"),
        b: T.Buffer((8, 16), "float32"),
        ids: T.Buffer((8,), "int32"),
        out: T.Buffer((16, 8), "float32"),
        long: T.Buffer((16, 16), "float32"),
        wide: T.Buffer((16, 8), "float64"),
    ):
        T.func_attr({"tir.noalias": True})
        for i in range(16):
            for j in range(8):
                out[i, j] = out[i, j] + a[i, j] * b[0, i]
            for j in range(16):
                long[i, j] = b[0, j]
            for j in range(8):
                wide[i, j] = T.Cast("float64", a[i, j])
            for j in range(8):
                out[i, j] = b[j, i]
            for j in range(8):
                out[i, j] = a[i, ids[j]]
            for j in range(4):
                out[i, j + 1] = out[i, j]
            for j in range(3):
                out[i, j] = a[i, j + 5]
            for j in range(4):
                out[i, j * 2] = a[i, j]
            for j in range(4):
                out[i, j + 4] = T.exp(a[i, j])

    @T.prim_func(private=True)
    def may_overlap(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        for i in range(8):
            b[i] = a[i]


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def f(
        a: T.Buffer((16, 8), "float32"),
        b: T.Buffer((8, 16), "float32"),
        ids: T.Buffer((8,), "int32"),
        out: T.Buffer((16, 8), "float32"),
        long: T.Buffer((16, 16), "float32"),
        wide: T.Buffer((16, 8), "float64"),
    ):
        T.func_attr({"tir.noalias": True})
        for i in range(16):
            for j in T.vectorized(8):
                out[i, j] = out[i, j] + a[i, j] * b[0, i]
            for j in range(16):
                long[i, j] = b[0, j]
            for j in range(8):
                wide[i, j] = T.Cast("float64", a[i, j])
            for j in range(8):
                out[i, j] = b[j, i]
            for j in range(8):
                out[i, j] = a[i, ids[j]]
            for j in range(4):
                out[i, j + 1] = out[i, j]
            for j in range(3):
                out[i, j] = a[i, j + 5]
            for j in range(4):
                out[i, j * 2] = a[i, j]
            for j in T.vectorized(4):
                out[i, j + 4] = T.exp(a[i, j])

    @T.prim_func(private=True)
    def may_overlap(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        for i in range(8):
            b[i] = a[i]
