# ruff: noqa
# One row, which is bfloat16 already: one tile height. Columns of an odd number of vectors are in tiles of one vector.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(x: T.Buffer((1, 6), "bfloat16"), w: T.Buffer((16, 6), "bfloat16"), matmul: T.Buffer((1, 16), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        for i0, i1, k in T.grid(1, 16, 6):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], w[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + T.Cast("float32", x[v_i0, v_k]) * T.Cast(
                    "float32", w[v_i1, v_k]
                )


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(
        x: T.Buffer((1, 6), "bfloat16"), w: T.Buffer((1, 3, 16, 2), "bfloat16"), matmul: T.Buffer((1, 16), "float32")
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "layouts": {"1": T.index_map(lambda i0, i1: (i0 // 16, i1 // 2, i0 % 16, i1 % 2))},
                "tir.is_scheduled": True,
                "schedule": "Bfloat16Matmul",
            }
        )
        matmul_local = T.decl_buffer((1, 16), "float32", scope="local")
        for i1_2_init in T.vectorized(16):
            matmul_local[0, i1_2_init] = T.float32(0.0)
        for ax1 in range(3):
            T.evaluate(
                T.call_intrin(
                    "handle", "intrinsic.cpu.prefetch.l2", T.call_intrin("handle", "address_of", w[0, ax1, 0, 0])
                )
            )
        for k_1 in T.unroll(3):
            T.evaluate(
                T.call_intrin(
                    "handle",
                    "intrinsic.dot2.avx512bf16.pairs",
                    T.call_intrin("handle", "address_of", matmul_local[0, 0], T.int64(1), T.int64(16)),
                    T.call_intrin("handle", "address_of", x[0, k_1 * 2], T.int64(1), T.int64(2)),
                    T.call_intrin(
                        "handle", "address_of", w[0, k_1, 0, 0], T.int64(1), T.int64(1), T.int64(16), T.int64(2)
                    ),
                )
            )
        for ax0 in T.vectorized(16):
            matmul[0, ax0] = matmul_local[0, ax0]
