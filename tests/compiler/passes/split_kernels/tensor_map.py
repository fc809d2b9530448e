# ruff: noqa
# The matrix of which the kernel copies a box is passed as a tensor map, with the size that the caller gives.


@I.ir_module
class Module:
    @T.prim_func
    def main(var_x: T.handle, y: T.Buffer((64,), "float16")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 72), "float16")
        for bx in T.thread_binding(T.int64(1), thread="blockIdx.x"):
            box = T.decl_buffer((64, 64), "float16", scope="shared")
            full = T.decl_buffer((1,), "uint64", scope="shared")
            for tx in T.thread_binding(T.int64(64), thread="threadIdx.x"):
                if tx == T.int64(0):
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.cuda.mbarrier.init",
                            T.call_intrin("handle", "address_of", full[0]),
                            T.int32(1),
                        )
                    )
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.cuda.mbarrier.arrive_expect_tx",
                            T.call_intrin("handle", "address_of", full[0]),
                            T.int32(8192),
                        )
                    )
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.cuda.tensor_copy.64.f16",
                            T.call_intrin("handle", "address_of", box[0, 0]),
                            T.call_intrin("handle", "address_of", x[0, 0]),
                            T.call_intrin("handle", "address_of", full[0]),
                            T.int64(0),
                            T.int64(8),
                            n,
                            T.int64(72),
                        )
                    )
                T.evaluate(T.tvm_storage_sync("shared"))
                T.evaluate(
                    T.call_intrin(
                        "handle",
                        "intrinsic.cuda.mbarrier.wait",
                        T.call_intrin("handle", "address_of", full[0]),
                        T.int32(0),
                    )
                )
                y[tx] = box[tx, 0]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func
    def main(var_x: T.handle, y: T.Buffer((64,), "float16")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 72), "float16")
        T.evaluate(
            T.call_intrin(
                "handle",
                "cuda.launch",
                "main_kernel",
                T.int64(1),
                T.int64(1),
                T.int64(1),
                T.int64(64),
                T.int64(1),
                T.int64(1),
                T.int64(8200),
                T.call_intrin(
                    "handle",
                    "cuda.tensor_map",
                    T.call_intrin("handle", "address_of", x[0, 0]),
                    n,
                    T.int64(72),
                    T.int64(64),
                ),
                T.call_intrin("handle", "address_of", y[0]),
                n,
            )
        )

    @T.prim_func(private=True)
    def main_kernel(var_x: T.handle, y: T.Buffer((64,), "float16")):
        T.func_attr({"cuda.kernel": True, "cuda.tensor_maps": (0,), "tir.noalias": True})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 72), "float16")
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            box = T.decl_buffer((64, 64), "float16", scope="shared")
            full = T.decl_buffer((1,), "uint64", scope="shared")
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                if tx == 0:
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.cuda.mbarrier.init",
                            T.call_intrin("handle", "address_of", full[0]),
                            T.int32(1),
                        )
                    )
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.cuda.mbarrier.arrive_expect_tx",
                            T.call_intrin("handle", "address_of", full[0]),
                            T.int32(8192),
                        )
                    )
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.cuda.tensor_copy.64.f16",
                            T.call_intrin("handle", "address_of", box[0, 0]),
                            T.call_intrin("handle", "address_of", x[0, 0]),
                            T.call_intrin("handle", "address_of", full[0]),
                            T.int64(0),
                            T.int64(8),
                            n,
                            T.int64(72),
                        )
                    )
                T.evaluate(T.tvm_storage_sync("shared"))
                T.evaluate(
                    T.call_intrin(
                        "handle",
                        "intrinsic.cuda.mbarrier.wait",
                        T.call_intrin("handle", "address_of", full[0]),
                        T.int32(0),
                    )
                )
                y[tx] = box[tx, 0]
