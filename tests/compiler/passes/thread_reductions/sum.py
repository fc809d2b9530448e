# ruff: noqa
# A sum that 32 threads of a block share: each adds its part to the register of its own, then they exchange sums.


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def sum(x: T.Buffer((3, 50), "float32"), sum: T.Buffer((3,), "float32")):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "op_pattern": "reduction",
                "activations": (0,),
                "tir.is_scheduled": True,
                "schedule": "RowReduction",
            }
        )
        for ax0_0 in T.thread_binding(3, thread="blockIdx.x"):
            sum_local = T.decl_buffer((1,), "float32", scope="local")
            sum_local[0] = T.float32(0.0)
            for ax0_1 in T.thread_binding(32, thread="threadIdx.x", annotations={"thread_reduction": True}):
                for ax0_2 in T.unroll(2):
                    if ax0_1 * 2 + ax0_2 < 50:
                        sum_local[0] = sum_local[0] + x[ax0_0, ax0_1 * 2 + ax0_2]
            for ax0_1 in T.thread_binding(1, thread="threadIdx.x"):
                sum[ax0_0 + ax0_1] = sum_local[ax0_1]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def sum(x: T.Buffer((3, 50), "float32"), sum: T.Buffer((3,), "float32")):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "op_pattern": "reduction",
                "activations": (0,),
                "tir.is_scheduled": True,
                "schedule": "RowReduction",
            }
        )
        for ax0_0 in T.thread_binding(3, thread="blockIdx.x"):
            for thread_x in T.thread_binding(32, thread="threadIdx.x"):
                sum_local = T.decl_buffer((1,), "float32", scope="local")
                sum_local[0] = T.float32(0.0)
                with T.decl_buffer((1,), "float32", scope="local") as sum_local_part:
                    sum_local_part[0] = T.float32(0.0)
                    for ax0_2 in T.unroll(2):
                        if thread_x * 2 + ax0_2 < 50:
                            sum_local_part[0] = sum_local_part[0] + x[ax0_0, thread_x * 2 + ax0_2]
                    with T.decl_buffer((1,), "float32", scope="local") as mine:
                        theirs = T.decl_buffer((1,), "float32", scope="local")
                        mine[0] = sum_local_part[0]
                        T.evaluate(
                            T.call_intrin(
                                "handle",
                                "intrinsic.cuda.shfl.xor.f32",
                                T.call_intrin("handle", "address_of", theirs[0]),
                                T.call_intrin("handle", "address_of", mine[0]),
                                T.int64(16),
                            )
                        )
                        sum_local_part[0] = sum_local_part[0] + theirs[0]
                    with T.decl_buffer((1,), "float32", scope="local") as mine:
                        theirs = T.decl_buffer((1,), "float32", scope="local")
                        mine[0] = sum_local_part[0]
                        T.evaluate(
                            T.call_intrin(
                                "handle",
                                "intrinsic.cuda.shfl.xor.f32",
                                T.call_intrin("handle", "address_of", theirs[0]),
                                T.call_intrin("handle", "address_of", mine[0]),
                                T.int64(8),
                            )
                        )
                        sum_local_part[0] = sum_local_part[0] + theirs[0]
                    with T.decl_buffer((1,), "float32", scope="local") as mine:
                        theirs = T.decl_buffer((1,), "float32", scope="local")
                        mine[0] = sum_local_part[0]
                        T.evaluate(
                            T.call_intrin(
                                "handle",
                                "intrinsic.cuda.shfl.xor.f32",
                                T.call_intrin("handle", "address_of", theirs[0]),
                                T.call_intrin("handle", "address_of", mine[0]),
                                T.int64(4),
                            )
                        )
                        sum_local_part[0] = sum_local_part[0] + theirs[0]
                    with T.decl_buffer((1,), "float32", scope="local") as mine:
                        theirs = T.decl_buffer((1,), "float32", scope="local")
                        mine[0] = sum_local_part[0]
                        T.evaluate(
                            T.call_intrin(
                                "handle",
                                "intrinsic.cuda.shfl.xor.f32",
                                T.call_intrin("handle", "address_of", theirs[0]),
                                T.call_intrin("handle", "address_of", mine[0]),
                                T.int64(2),
                            )
                        )
                        sum_local_part[0] = sum_local_part[0] + theirs[0]
                    with T.decl_buffer((1,), "float32", scope="local") as mine:
                        theirs = T.decl_buffer((1,), "float32", scope="local")
                        mine[0] = sum_local_part[0]
                        T.evaluate(
                            T.call_intrin(
                                "handle",
                                "intrinsic.cuda.shfl.xor.f32",
                                T.call_intrin("handle", "address_of", theirs[0]),
                                T.call_intrin("handle", "address_of", mine[0]),
                                T.int64(1),
                            )
                        )
                        sum_local_part[0] = sum_local_part[0] + theirs[0]
                    sum_local[0] = sum_local[0] + sum_local_part[0]
                if thread_x < 1:
                    sum[ax0_0 + thread_x] = sum_local[thread_x]
