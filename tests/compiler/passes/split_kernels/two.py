# ruff: noqa
# Two kernels, one of them under a condition on the host; the second needs a scalar and the size n.


@I.ir_module
class Module:
    @T.prim_func
    def main(var_a: T.handle, b: T.Buffer((4,), "float32"), scale: T.float32):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        a = T.match_buffer(var_a, (n, 4), "float32")
        for bx in T.thread_binding(T.int64(1), thread="blockIdx.x"):
            for tx in T.thread_binding(T.int64(4), thread="threadIdx.x"):
                b[tx] = T.float32(0.0)
        if n > T.int64(8):
            for bx in T.thread_binding((n + T.int64(7)) // T.int64(8), thread="blockIdx.x"):
                for ty in T.thread_binding(T.int64(8), thread="threadIdx.y"):
                    for tx in T.thread_binding(T.int64(4), thread="threadIdx.x"):
                        if bx * T.int64(8) + ty < n:
                            a[bx * T.int64(8) + ty, tx] = b[tx] * scale


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func
    def main(var_a: T.handle, b: T.Buffer((4,), "float32"), scale: T.float32):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        a = T.match_buffer(var_a, (n, 4), "float32")
        T.evaluate(
            T.call_intrin(
                "handle",
                "cuda.launch",
                "main_kernel",
                T.int64(1),
                T.int64(1),
                T.int64(1),
                T.int64(4),
                T.int64(1),
                T.int64(1),
                T.int64(0),
                T.call_intrin("handle", "address_of", b[0]),
            )
        )
        if n > 8:
            T.evaluate(
                T.call_intrin(
                    "handle",
                    "cuda.launch",
                    "main_kernel_1",
                    (n + 7) // 8,
                    T.int64(1),
                    T.int64(1),
                    T.int64(4),
                    T.int64(8),
                    T.int64(1),
                    T.int64(0),
                    T.call_intrin("handle", "address_of", a[0, 0]),
                    T.call_intrin("handle", "address_of", b[0]),
                    scale,
                    n,
                )
            )

    @T.prim_func(private=True)
    def main_kernel(b: T.Buffer((4,), "float32")):
        T.func_attr({"tir.noalias": True, "cuda.kernel": True})
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                b[tx] = T.float32(0.0)

    @T.prim_func(private=True)
    def main_kernel_1(var_a: T.handle, b: T.Buffer((4,), "float32"), scale: T.float32):
        T.func_attr({"tir.noalias": True, "cuda.kernel": True})
        n = T.int64()
        a = T.match_buffer(var_a, (n, 4), "float32")
        for bx in T.thread_binding((n + 7) // 8, thread="blockIdx.x"):
            for ty in T.thread_binding(8, thread="threadIdx.y"):
                for tx in T.thread_binding(4, thread="threadIdx.x"):
                    if bx * 8 + ty < n:
                        a[bx * 8 + ty, tx] = b[tx] * scale
