# ruff: noqa
# A buffer that carries elements between iterations is allocated around the loop; so is one that SIMD lanes share.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def scan(x: T.Buffer((6, 4), "float32"), y: T.Buffer((6, 4), "float32")):
        state = T.alloc_buffer((4,), "float32")
        for j in T.parallel(4):
            for t in range(6):
                with T.block("step"):
                    vj, vt = T.axis.remap("SR", [j, t])
                    with T.init():
                        state[vj] = T.float32(0)
                    state[vj] = state[vj] * T.float32(0.5) + x[vt, vj]
                    y[vt, vj] = state[vj]

    @T.prim_func(private=True)
    def delay(x: T.Buffer((6, 4), "float32"), y: T.Buffer((6, 4), "float32")):
        seen = T.alloc_buffer((6, 4), "float32")
        for t in range(6):
            for j in range(4):
                with T.block("put"):
                    vt, vj = T.axis.remap("SS", [t, j])
                    seen[vt, vj] = x[vt, vj]
            for j in range(4):
                with T.block("get"):
                    vt, vj = T.axis.remap("SS", [t, j])
                    y[vt, vj] = seen[T.max(vt - 1, 0), vj]

    @T.prim_func(private=True)
    def lanes(x: T.Buffer((2, 8), "float32"), y: T.Buffer((2, 8), "float32")):
        once = T.alloc_buffer((2, 8), "float32")
        for i in range(2):
            for j in T.vectorized(8):
                with T.block("once"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    once[vi, vj] = x[vi, vj] * x[vi, vj]
                with T.block("out"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = once[vi, vj] + once[vi, vj]


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def scan(x: T.Buffer((6, 4), "float32"), y: T.Buffer((6, 4), "float32")):
        for j in T.parallel(4):
            state = T.decl_buffer((1,), "float32")
            state[0] = T.float32(0.0)
            for t in range(6):
                state[0] = state[0] * T.float32(0.5) + x[t, j]
                y[t, j] = state[0]

    @T.prim_func(private=True)
    def delay(x: T.Buffer((6, 4), "float32"), y: T.Buffer((6, 4), "float32")):
        seen = T.decl_buffer((6, 4), "float32")
        for t in range(6):
            for j in range(4):
                seen[t, j] = x[t, j]
            for j in range(4):
                y[t, j] = seen[T.max(t - 1, 0), j]

    @T.prim_func(private=True)
    def lanes(x: T.Buffer((2, 8), "float32"), y: T.Buffer((2, 8), "float32")):
        for i in range(2):
            once = T.decl_buffer((1, 8), "float32")
            for j in T.vectorized(8):
                once[0, j] = x[i, j] * x[i, j]
                y[i, j] = once[0, j] + once[0, j]
