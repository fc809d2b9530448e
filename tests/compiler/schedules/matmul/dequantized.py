# ruff: noqa
# Codes and scales are read in the product; in low tiles each group is summed before it is scaled.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def dequantize_linear_silu(
        x: T.Buffer((3, 64), "float32"),
        q: T.Buffer((20, 8), "uint32"),
        scale: T.Buffer((20, 2), "float16"),
        silu: T.Buffer((3, 20), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        dequantize = T.alloc_buffer((20, 64), "float32")
        matmul = T.alloc_buffer((3, 20), "float32")
        for i0, i1 in T.grid(20, 64):
            with T.block("dequantize"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(q[v_i0, v_i1 // 8], scale[v_i0, v_i1 // 32])
                T.writes(dequantize[v_i0, v_i1])
                dequantize[v_i0, v_i1] = T.Cast(
                    "float32",
                    T.Cast("int32", q[v_i0, v_i1 // 8] >> T.Cast("uint32", v_i1 % 8 * 4) & T.uint32(15)) - T.int32(7),
                ) * T.Cast("float32", scale[v_i0, v_i1 // 32])
        for i0, i1, k in T.grid(3, 20, 64):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], dequantize[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + x[v_i0, v_k] * dequantize[v_i1, v_k]
        for i0, i1 in T.grid(3, 20):
            with T.block("silu"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(matmul[v_i0, v_i1])
                T.writes(silu[v_i0, v_i1])
                silu[v_i0, v_i1] = matmul[v_i0, v_i1] * T.sigmoid(matmul[v_i0, v_i1])


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def dequantize_linear_silu(
        x: T.Buffer((3, 64), "float32"),
        q: T.Buffer((2, 8, 16), "uint32"),
        scale: T.Buffer((2, 2, 16), "float16"),
        silu: T.Buffer((3, 20), "float32"),
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "layouts": {
                    "1": T.index_map(lambda i0, i1: (i0 // 16, i1, i0 % 16)),
                    "2": T.index_map(lambda i0, i1: (i0 // 16, i1, i0 % 16)),
                },
                "tir.is_scheduled": True,
                "schedule": "Matmul",
            }
        )
        for i1_0 in T.parallel(2):
            for i0_0 in range(3):
                matmul_local = T.decl_buffer((1, 16), "float32", scope="local")
                for i1_1_init in T.vectorized(16):
                    matmul_local[0, i1_1_init] = T.float32(0.0)
                for g in range(2):
                    matmul_local_partial = T.decl_buffer((1, 16, 1), "float32", scope="local")
                    for ax0_init in T.vectorized(16):
                        matmul_local_partial[0, ax0_init, 0] = T.float32(0.0)
                    for ax1_0 in range(4):
                        for ax1_1 in T.unroll(8):
                            for ax0 in T.vectorized(16):
                                matmul_local_partial[0, ax0, 0] = matmul_local_partial[0, ax0, 0] + x[
                                    i0_0, g * 32 + ax1_0 * 8 + ax1_1
                                ] * T.Cast(
                                    "float32",
                                    T.Cast(
                                        "int32",
                                        q[i1_0, g * 4 + ax1_0, ax0] >> T.Cast("uint32", ax1_1 * 4) & T.uint32(15),
                                    )
                                    - T.int32(7),
                                )
                    for i1_1 in T.vectorized(16):
                        matmul_local[0, i1_1] = matmul_local[0, i1_1] + matmul_local_partial[0, i1_1, 0] * T.Cast(
                            "float32", scale[i1_0, g, i1_1]
                        )
                for ax0 in T.vectorized(16):
                    if i1_0 * 16 + ax0 < 20:
                        silu[i0_0, i1_0 * 16 + ax0] = matmul_local[0, ax0] * T.sigmoid(matmul_local[0, ax0])
