# ruff: noqa
# Rounded activations, four rows of which are stored together; the bias is added to the sums of a tile.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(var_x: T.handle, w: T.Buffer((48, 12), "bfloat16"), bias: T.Buffer((48,), "float32"), var_y: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "activations": (0,)})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 12), "float32")
        y = T.match_buffer(var_y, (n, 48), "float32")
        # with T.block("root"):
        rounded = T.alloc_buffer((n, 12), "bfloat16")
        matmul = T.alloc_buffer((n, 48), "float32")
        for i0, i1 in T.grid(n, 12):
            with T.block("rounded"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1])
                T.writes(rounded[v_i0, v_i1])
                rounded[v_i0, v_i1] = T.Cast("bfloat16", x[v_i0, v_i1])
        for i0, i1, k in T.grid(n, 48, 12):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(rounded[v_i0, v_k], w[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + T.Cast("float32", rounded[v_i0, v_k]) * T.Cast(
                    "float32", w[v_i1, v_k]
                )
        for i0, i1 in T.grid(n, 48):
            with T.block("y"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(matmul[v_i0, v_i1], bias[v_i1])
                T.writes(y[v_i0, v_i1])
                y[v_i0, v_i1] = matmul[v_i0, v_i1] + bias[v_i1]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(
        var_x: T.handle, w: T.Buffer((3, 6, 16, 2), "bfloat16"), bias: T.Buffer((48,), "float32"), var_y: T.handle
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "activations": (0,),
                "layouts": {"1": T.index_map(lambda i0, i1: (i0 // 16, i1 // 2, i0 % 16, i1 % 2))},
                "tir.is_scheduled": True,
                "schedule": "Bfloat16Matmul",
            }
        )
        n = T.int64()
        x = T.match_buffer(var_x, (n, 12), "float32")
        y = T.match_buffer(var_y, (n, 48), "float32")
        rounded = T.decl_buffer(((n + 3) // 4, 1, 4, 12), "bfloat16")
        for i0_i1_0_fused in T.parallel(n):
            for i1_1 in T.vectorized(12):
                rounded[i0_i1_0_fused // 4, 0, i0_i1_0_fused % 4, i1_1] = T.Cast("bfloat16", x[i0_i1_0_fused, i1_1])
        for i1_0 in T.parallel(3):
            for i0_0 in range(n // 12):
                matmul_local_p0 = T.decl_buffer((12, 16), "float32", scope="local")
                for i0_1_init in T.unroll(12):
                    for i1_2_init in T.vectorized(16):
                        matmul_local_p0[i0_1_init, i1_2_init] = T.float32(0.0)
                for ax1 in range(6):
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.cpu.prefetch.l2",
                            T.call_intrin("handle", "address_of", w[i1_0, ax1, 0, 0]),
                        )
                    )
                for k_1 in T.unroll(6):
                    for i0_1 in T.unroll(12):
                        T.evaluate(
                            T.call_intrin(
                                "handle",
                                "intrinsic.dot2.avx512bf16.pairs",
                                T.call_intrin(
                                    "handle", "address_of", matmul_local_p0[i0_1, 0], T.int64(1), T.int64(16)
                                ),
                                T.call_intrin(
                                    "handle",
                                    "address_of",
                                    rounded[i0_0 * 3 + i0_1 // 4, 0, i0_1 % 4, k_1 * 2],
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(2),
                                ),
                                T.call_intrin(
                                    "handle",
                                    "address_of",
                                    w[i1_0, k_1, 0, 0],
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(16),
                                    T.int64(2),
                                ),
                            )
                        )
                for ax0 in T.unroll(12):
                    for ax1 in T.vectorized(16):
                        y[i0_0 * 12 + ax0, i1_0 * 16 + ax1] = matmul_local_p0[ax0, ax1] + bias[i1_0 * 16 + ax1]
            for i0_0 in range(n // 4 - n // 12 * 3):
                matmul_local_p1 = T.decl_buffer((4, 16), "float32", scope="local")
                for i0_1_init in T.unroll(4):
                    for i1_2_init in T.vectorized(16):
                        matmul_local_p1[i0_1_init, i1_2_init] = T.float32(0.0)
                for ax1 in range(6):
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.cpu.prefetch.l2",
                            T.call_intrin("handle", "address_of", w[i1_0, ax1, 0, 0]),
                        )
                    )
                for k_1 in T.unroll(6):
                    for i0_1 in T.unroll(4):
                        T.evaluate(
                            T.call_intrin(
                                "handle",
                                "intrinsic.dot2.avx512bf16.pairs",
                                T.call_intrin(
                                    "handle", "address_of", matmul_local_p1[i0_1, 0], T.int64(1), T.int64(16)
                                ),
                                T.call_intrin(
                                    "handle",
                                    "address_of",
                                    rounded[i0_0 + n // 12 * 3, 0, i0_1, k_1 * 2],
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(2),
                                ),
                                T.call_intrin(
                                    "handle",
                                    "address_of",
                                    w[i1_0, k_1, 0, 0],
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(16),
                                    T.int64(2),
                                ),
                            )
                        )
                for ax0 in T.unroll(4):
                    for ax1 in T.vectorized(16):
                        y[i0_0 * 4 + n // 12 * 12 + ax0, i1_0 * 16 + ax1] = (
                            matmul_local_p1[ax0, ax1] + bias[i1_0 * 16 + ax1]
                        )
            for i0_0 in range(n % 4):
                matmul_local_p2 = T.decl_buffer((1, 16), "float32", scope="local")
                for i1_2_init in T.vectorized(16):
                    matmul_local_p2[0, i1_2_init] = T.float32(0.0)
                for ax1 in range(6):
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.cpu.prefetch.l2",
                            T.call_intrin("handle", "address_of", w[i1_0, ax1, 0, 0]),
                        )
                    )
                for k_1 in T.unroll(6):
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.dot2.avx512bf16.pairs",
                            T.call_intrin("handle", "address_of", matmul_local_p2[0, 0], T.int64(1), T.int64(16)),
                            T.call_intrin(
                                "handle",
                                "address_of",
                                rounded[n // 4, 0, i0_0, k_1 * 2],
                                T.int64(1),
                                T.int64(1),
                                T.int64(1),
                                T.int64(2),
                            ),
                            T.call_intrin(
                                "handle",
                                "address_of",
                                w[i1_0, k_1, 0, 0],
                                T.int64(1),
                                T.int64(1),
                                T.int64(16),
                                T.int64(2),
                            ),
                        )
                    )
                for ax0 in T.vectorized(16):
                    y[i0_0 + n // 4 * 4, i1_0 * 16 + ax0] = matmul_local_p2[0, ax0] + bias[i1_0 * 16 + ax0]
