# ruff: noqa
# A private sum gets an axis of virtual threads; the load that they share is done once.


@I.ir_module
class Module:
    @T.prim_func
    def main(a: T.Buffer((64,), "float32"), b: T.Buffer((2, 64), "float32")):
        for tx in T.thread_binding(T.int64(64), thread="threadIdx.x"):
            for v in T.thread_binding(T.int64(2), thread="vthread.x"):
                total = T.decl_buffer((1,), "float32", scope="local")
                total[0] = T.float32(0.0)
                for k in range(4):
                    total[0] = total[0] + a[tx]
                b[v, tx] = total[0]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func
    def main(a: T.Buffer((64,), "float32"), b: T.Buffer((2, 64), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            total = T.decl_buffer((1,), "float32", scope="local")
            total[0] = T.float32(0.0)
            for k in range(4):
                total[0] = total[0] + a[tx]
            for v in T.unroll(2):
                b[v, tx] = total[0]
