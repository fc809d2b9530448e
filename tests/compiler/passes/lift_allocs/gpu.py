# ruff: noqa
# A buffer between kernels is lifted; shared memory and the registers of a thread stay.


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def main(var_a: T.handle):
        n = T.int64()
        a = T.match_buffer(var_a, (n, 4), "float32")
        with T.decl_buffer((n, 4), "float32") as between:
            for bx in T.thread_binding(n, thread="blockIdx.x"):
                with T.decl_buffer((4,), "float32", scope="shared") as tile:
                    for tx in T.thread_binding(T.int64(4), thread="threadIdx.x"):
                        tile[tx] = a[bx, tx]
                        between[bx, tx] = tile[tx]
            for bx in T.thread_binding(n, thread="blockIdx.x"):
                for tx in T.thread_binding(T.int64(4), thread="threadIdx.x"):
                    a[bx, tx] = between[bx, tx]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def main(var_a: T.handle, var_between: T.handle):
        T.func_attr({"num_scratch": 1})
        n = T.int64()
        a = T.match_buffer(var_a, (n, 4), "float32")
        between = T.match_buffer(var_between, (n, 4), "float32")
        for bx in T.thread_binding(n, thread="blockIdx.x"):
            tile = T.decl_buffer((4,), "float32", scope="shared")
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                tile[tx] = a[bx, tx]
                between[bx, tx] = tile[tx]
        for bx in T.thread_binding(n, thread="blockIdx.x"):
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                a[bx, tx] = between[bx, tx]
