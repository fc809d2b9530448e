# ruff: noqa
# Rows in tiles of 4 and then 1, columns in parallel tiles of 16, accumulators in registers; the epilogue finishes each
# tile. The weight is stored in tiles; padded columns are computed and not stored.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear_bias_add(
        var_x: T.handle,
        w: T.Buffer((20, 20), "float32"),
        bias: T.Buffer((20,), "float32"),
        var_residual: T.handle,
        var_add: T.handle,
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 20), "float32")
        residual = T.match_buffer(var_residual, (n, 20), "float32")
        add = T.match_buffer(var_add, (n, 20), "float32")
        # with T.block("root"):
        matmul = T.alloc_buffer((n, 20), "float32")
        add_bias = T.alloc_buffer((n, 20), "float32")
        for i0, i1, k in T.grid(n, 20, 20):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], w[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + x[v_i0, v_k] * w[v_i1, v_k]
        for i0, i1 in T.grid(n, 20):
            with T.block("add_bias"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(matmul[v_i0, v_i1], bias[v_i1])
                T.writes(add_bias[v_i0, v_i1])
                add_bias[v_i0, v_i1] = matmul[v_i0, v_i1] + bias[v_i1]
        for i0, i1 in T.grid(n, 20):
            with T.block("add"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(add_bias[v_i0, v_i1], residual[v_i0, v_i1])
                T.writes(add[v_i0, v_i1])
                add[v_i0, v_i1] = add_bias[v_i0, v_i1] + residual[v_i0, v_i1]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear_bias_add(
        var_x: T.handle,
        w: T.Buffer((2, 20, 16), "float32"),
        bias: T.Buffer((20,), "float32"),
        var_residual: T.handle,
        var_add: T.handle,
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "layouts": {"1": T.index_map(lambda i0, i1: (i0 // 16, i1, i0 % 16))},
                "tir.is_scheduled": True,
                "schedule": "Matmul",
            }
        )
        n = T.int64()
        x = T.match_buffer(var_x, (n, 20), "float32")
        residual = T.match_buffer(var_residual, (n, 20), "float32")
        add = T.match_buffer(var_add, (n, 20), "float32")
        for i1_0 in T.parallel(2):
            for i0_0 in range(n // 4):
                matmul_local_p0 = T.decl_buffer((4, 16), "float32", scope="local")
                for i0_1_init in T.unroll(4):
                    for i1_1_init in T.vectorized(16):
                        matmul_local_p0[i0_1_init, i1_1_init] = T.float32(0.0)
                for k_0 in range(4):
                    for ax1 in range(5):
                        T.evaluate(
                            T.call_intrin(
                                "handle",
                                "intrinsic.cpu.prefetch",
                                T.call_intrin("handle", "address_of", w[i1_0, ax1 + (k_0 + 1) % 4 * 5, 0]),
                            )
                        )
                    for k_1 in T.unroll(5):
                        for i0_1 in T.unroll(4):
                            for i1_1 in T.vectorized(16):
                                matmul_local_p0[i0_1, i1_1] = (
                                    matmul_local_p0[i0_1, i1_1]
                                    + x[i0_0 * 4 + i0_1, k_0 * 5 + k_1] * w[i1_0, k_0 * 5 + k_1, i1_1]
                                )
                for ax0 in T.unroll(4):
                    for ax1 in T.vectorized(16):
                        if i1_0 * 16 + ax1 < 20:
                            add[i0_0 * 4 + ax0, i1_0 * 16 + ax1] = (
                                matmul_local_p0[ax0, ax1]
                                + bias[i1_0 * 16 + ax1]
                                + residual[i0_0 * 4 + ax0, i1_0 * 16 + ax1]
                            )
            for i0_0 in range(n % 4):
                matmul_local_p1 = T.decl_buffer((1, 16), "float32", scope="local")
                for i1_1_init in T.vectorized(16):
                    matmul_local_p1[0, i1_1_init] = T.float32(0.0)
                for k_0 in range(4):
                    for ax1 in range(5):
                        T.evaluate(
                            T.call_intrin(
                                "handle",
                                "intrinsic.cpu.prefetch",
                                T.call_intrin("handle", "address_of", w[i1_0, ax1 + (k_0 + 1) % 4 * 5, 0]),
                            )
                        )
                    for k_1 in T.unroll(5):
                        for i1_1 in T.vectorized(16):
                            matmul_local_p1[0, i1_1] = (
                                matmul_local_p1[0, i1_1]
                                + x[i0_0 + n // 4 * 4, k_0 * 5 + k_1] * w[i1_0, k_0 * 5 + k_1, i1_1]
                            )
                for ax0 in T.vectorized(16):
                    if i1_0 * 16 + ax0 < 20:
                        add[i0_0 + n // 4 * 4, i1_0 * 16 + ax0] = (
                            matmul_local_p1[0, ax0]
                            + bias[i1_0 * 16 + ax0]
                            + residual[i0_0 + n // 4 * 4, i1_0 * 16 + ax0]
                        )
