# ruff: noqa
# Parallel loops become blocks of 256 threads, or as annotated; other statements run on one thread; host control flow stays.


@I.ir_module
class Module:
    @T.prim_func
    def main(var_a: T.handle, b: T.Buffer((4,), "float32"), flag: T.int64):
        n = T.int64()
        a = T.match_buffer(var_a, (n, 4), "float32")
        b[0] = T.float32(0.0)
        for i in T.parallel(n):
            for j in T.vectorized(4):
                a[i, j] = a[i, j] * T.float32(2.0)
        if flag > T.int64(0):
            for i in T.parallel(n, annotations={"cuda.threads": 64, "cuda.iterations": 2}):
                a[i, 0] = b[0]
        for bx in T.thread_binding(n, thread="blockIdx.x"):
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                a[bx, tx] = a[bx, tx] + T.float32(1.0)


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func
    def main(var_a: T.handle, b: T.Buffer((4,), "float32"), flag: T.int64):
        n = T.int64()
        a = T.match_buffer(var_a, (n, 4), "float32")
        for block in T.thread_binding(1, thread="blockIdx.x"):
            for thread in T.thread_binding(1, thread="threadIdx.x"):
                b[0] = T.float32(0.0)
        for block in T.thread_binding((n + 255) // 256, thread="blockIdx.x"):
            for thread in T.thread_binding(256, thread="threadIdx.x"):
                if block * 256 + thread < n:
                    for j in T.vectorized(4):
                        a[block * 256 + thread, j] = a[block * 256 + thread, j] * T.float32(2.0)
        if flag > 0:
            for block in T.thread_binding((n + 127) // 128, thread="blockIdx.x"):
                for thread in T.thread_binding(64, thread="threadIdx.x"):
                    for step in T.unroll(2):
                        if (block * 2 + step) * 64 + thread < n:
                            a[(block * 2 + step) * 64 + thread, 0] = b[0]
        for bx in T.thread_binding(n, thread="blockIdx.x"):
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                a[bx, tx] = a[bx, tx] + T.float32(1.0)
