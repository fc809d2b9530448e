# ruff: noqa
# A barrier between the store of a shared buffer and the loads by other threads.


@I.ir_module
class Module:
    @T.prim_func
    def main(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        for bx in T.thread_binding(T.int64(1), thread="blockIdx.x"):
            tile = T.decl_buffer((64,), "float32", scope="shared")
            for tx in T.thread_binding(T.int64(64), thread="threadIdx.x"):
                tile[tx] = a[tx]
                b[tx] = tile[T.int64(63) - tx]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func
    def main(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            tile = T.decl_buffer((64,), "float32", scope="shared")
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                tile[tx] = a[tx]
                T.evaluate(T.tvm_storage_sync("shared"))
                b[tx] = tile[63 - tx]
