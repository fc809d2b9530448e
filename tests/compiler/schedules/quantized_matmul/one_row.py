# ruff: noqa
# One row: sums of a group in registers, words unpacked once.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(
        x: T.Buffer((1, 40), "float32"),
        q: T.Buffer((16, 5), "uint32"),
        scale: T.Buffer((16, 2), "float16"),
        matmul: T.Buffer((1, 16), "float32"),
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "quantized_matmul": {
                    "dot": "dot4.avx2",
                    "columns": 8,
                    "rows": 64,
                    "rows_in_registers": 2,
                    "layout": "NK",
                },
            }
        )
        # with T.block("root"):
        words = T.alloc_buffer((2, 8, 16), "uint32")
        largest = T.alloc_buffer((1, 2), "int32")
        fixed = T.alloc_buffer((1, 2, 8, 4), "int32")
        digits = T.alloc_buffer((1, 2, 2, 8, 4), "int8")
        correction = T.alloc_buffer((1, 2), "int32")
        dots = T.alloc_buffer((1, 2, 2, 16), "int32")
        step = T.alloc_buffer((1, 2), "float32")
        product = T.alloc_buffer((1, 16), "float32")
        for g, step_1, n in T.grid(2, 8, 16):
            with T.block("words"):
                v_g, v_step, v_n = T.axis.remap("SSS", [g, step_1, n])
                T.reads(q[v_n, v_g * 4 + v_step // 2])
                T.writes(words[v_g, v_step, v_n])
                words[v_g, v_step, v_n] = T.if_then_else(
                    v_g * 4 + v_step // 2 < 5, q[v_n, v_g * 4 + v_step // 2], T.uint32(0)
                ) >> T.Cast("uint32", v_step % 2 * 4) & T.uint32(252645135)
        for row, g, k in T.grid(1, 2, 32):
            with T.block("largest"):
                v_row, v_g, v_k = T.axis.remap("SSR", [row, g, k])
                T.reads(x[0, v_g * 32 + v_k])
                T.writes(largest[v_row, v_g])
                with T.init():
                    largest[v_row, v_g] = T.int32(-2147483648)
                largest[v_row, v_g] = T.max(
                    largest[v_row, v_g],
                    T.reinterpret("int32", T.if_then_else(v_g * 32 + v_k < 40, x[0, v_g * 32 + v_k], T.float32(0.0)))
                    & T.int32(2147483647),
                )
        for row, g, step_1, byte in T.grid(1, 2, 8, 4):
            with T.block("fixed"):
                v_row, v_g, v_step, v_byte = T.axis.remap("SSSS", [row, g, step_1, byte])
                T.reads(x[0, v_g * 32 + ((v_step // 2 * 4 + v_byte) * 2 + v_step % 2)], largest[v_row, v_g])
                T.writes(fixed[v_row, v_g, v_step, v_byte])
                fixed[v_row, v_g, v_step, v_byte] = T.Cast(
                    "int32",
                    T.round(
                        T.if_then_else(
                            v_g * 32 + ((v_step // 2 * 4 + v_byte) * 2 + v_step % 2) < 40,
                            x[0, v_g * 32 + ((v_step // 2 * 4 + v_byte) * 2 + v_step % 2)],
                            T.float32(0.0),
                        )
                        * T.Select(
                            T.reinterpret("float32", largest[v_row, v_g]) > T.float32(1e-30),
                            T.float32(32639.0) / T.reinterpret("float32", largest[v_row, v_g]),
                            T.float32(0.0),
                        )
                    ),
                )
        for row, g, which, step_1, byte in T.grid(1, 2, 2, 8, 4):
            with T.block("digits"):
                v_row, v_g, v_which, v_step, v_byte = T.axis.remap("SSSSS", [row, g, which, step_1, byte])
                T.reads(fixed[v_row, v_g, v_step, v_byte])
                T.writes(digits[v_row, v_g, v_which, v_step, v_byte])
                digits[v_row, v_g, v_which, v_step, v_byte] = T.Cast(
                    "int8",
                    T.Select(
                        v_which < 1,
                        fixed[v_row, v_g, v_step, v_byte] + T.int32(128) >> T.int32(8),
                        fixed[v_row, v_g, v_step, v_byte]
                        - (fixed[v_row, v_g, v_step, v_byte] + T.int32(128) >> T.int32(8)) * T.int32(256),
                    ),
                )
        for row, g, step_1, byte in T.grid(1, 2, 8, 4):
            with T.block("correction"):
                v_row, v_g, v_step, v_byte = T.axis.remap("SSRR", [row, g, step_1, byte])
                T.reads(fixed[v_row, v_g, v_step, v_byte])
                T.writes(correction[v_row, v_g])
                with T.init():
                    correction[v_row, v_g] = T.int32(0)
                correction[v_row, v_g] = correction[v_row, v_g] + fixed[v_row, v_g, v_step, v_byte] * T.int32(-7)
        for row, g, which, n, step_1, byte in T.grid(1, 2, 2, 16, 8, 4):
            with T.block("dots"):
                v_row, v_g, v_which, v_n, v_step, v_byte = T.axis.remap("SSSSRR", [row, g, which, n, step_1, byte])
                T.reads(correction[v_row, v_g], words[v_g, v_step, v_n], digits[v_row, v_g, v_which, v_step, v_byte])
                T.writes(dots[v_row, v_g, v_which, v_n])
                with T.init():
                    dots[v_row, v_g, v_which, v_n] = T.Select(v_which < 1, T.int32(0), correction[v_row, v_g])
                dots[v_row, v_g, v_which, v_n] = dots[v_row, v_g, v_which, v_n] + T.Cast(
                    "int32", words[v_g, v_step, v_n] >> T.Cast("uint32", v_byte * 8) & T.uint32(255)
                ) * T.Cast("int32", digits[v_row, v_g, v_which, v_step, v_byte])
        for row, g in T.grid(1, 2):
            with T.block("step"):
                v_row, v_g = T.axis.remap("SS", [row, g])
                T.reads(largest[v_row, v_g])
                T.writes(step[v_row, v_g])
                step[v_row, v_g] = T.reinterpret("float32", largest[v_row, v_g]) * T.float32(3.0638193572106986e-05)
        for row, n, g in T.grid(1, 16, 2):
            with T.block("product"):
                v_row, v_n, v_g = T.axis.remap("SSR", [row, n, g])
                T.reads(dots[v_row, v_g, 0, v_n], dots[v_row, v_g, 1, v_n], scale[v_n, v_g], step[v_row, v_g])
                T.writes(product[v_row, v_n])
                with T.init():
                    product[v_row, v_n] = T.float32(0.0)
                product[v_row, v_n] = product[v_row, v_n] + T.Cast(
                    "float32", dots[v_row, v_g, 0, v_n] * T.int32(256) + dots[v_row, v_g, 1, v_n]
                ) * (T.Cast("float32", scale[v_n, v_g]) * step[v_row, v_g])
        for i0, i1 in T.grid(1, 16):
            with T.block("result"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(product[0, v_i1])
                T.writes(matmul[v_i0, v_i1])
                matmul[v_i0, v_i1] = product[0, v_i1]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(
        x: T.Buffer((1, 40), "float32"),
        q: T.Buffer((2, 5, 8), "uint32"),
        scale: T.Buffer((2, 2, 8), "float16"),
        matmul: T.Buffer((1, 16), "float32"),
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "quantized_matmul": {
                    "dot": "dot4.avx2",
                    "columns": 8,
                    "rows": 64,
                    "rows_in_registers": 2,
                    "layout": "NK",
                },
                "layouts": {
                    "1": T.index_map(lambda i0, i1: (i0 // 8, i1, i0 % 8)),
                    "2": T.index_map(lambda i0, i1: (i0 // 8, i1, i0 % 8)),
                },
                "tir.is_scheduled": True,
                "schedule": "QuantizedMatmul",
            }
        )
        step = T.decl_buffer((1, 2, 1), "float32", scope="private")
        correction = T.decl_buffer((1, 2, 1), "int32", scope="private")
        digits = T.decl_buffer((1, 2, 1, 2, 8, 4), "int8", scope="private")
        with T.decl_buffer((1, 2, 8, 4), "int32") as fixed:
            for g_1 in range(2):
                correction_rf = T.decl_buffer((1, 1, 16), "int32")
                largest_rf = T.decl_buffer((1, 1, 16), "int32")
                largest = T.decl_buffer((1, 1), "int32")
                for k_1_init in T.vectorized(16):
                    largest_rf[0, 0, k_1_init] = T.int32(-2147483648)
                for k_0 in range(2):
                    for k_1 in T.vectorized(16):
                        largest_rf[0, 0, k_1] = T.max(
                            largest_rf[0, 0, k_1],
                            T.reinterpret(
                                "int32",
                                T.if_then_else(
                                    g_1 * 32 + k_0 * 16 + k_1 < 40, x[0, g_1 * 32 + k_0 * 16 + k_1], T.float32(0.0)
                                ),
                            )
                            & T.int32(2147483647),
                        )
                largest[0, 0] = T.int32(-2147483648)
                for k_1 in range(16):
                    largest[0, 0] = T.max(largest[0, 0], largest_rf[0, 0, k_1])
                for ax0_ax1_fused in T.vectorized(32):
                    fixed[0, g_1, ax0_ax1_fused // 4, ax0_ax1_fused % 4] = T.Cast(
                        "int32",
                        T.round(
                            T.if_then_else(
                                g_1 * 32 + ax0_ax1_fused // 8 * 6 + ax0_ax1_fused * 2 - ax0_ax1_fused // 4 * 7 < 40,
                                x[0, g_1 * 32 + ax0_ax1_fused // 8 * 6 + ax0_ax1_fused * 2 - ax0_ax1_fused // 4 * 7],
                                T.float32(0.0),
                            )
                            * T.Select(
                                T.reinterpret("float32", largest[0, 0]) > T.float32(1e-30),
                                T.float32(32639.0) / T.reinterpret("float32", largest[0, 0]),
                                T.float32(0.0),
                            )
                        ),
                    )
                for ax0_ax1_ax2_fused in T.vectorized(64):
                    digits[0, g_1, 0, ax0_ax1_ax2_fused // 32, ax0_ax1_ax2_fused // 4 % 8, ax0_ax1_ax2_fused % 4] = (
                        T.Cast(
                            "int8",
                            T.Select(
                                ax0_ax1_ax2_fused // 32 < 1,
                                fixed[0, g_1, ax0_ax1_ax2_fused // 4 % 8, ax0_ax1_ax2_fused % 4] + T.int32(128)
                                >> T.int32(8),
                                fixed[0, g_1, ax0_ax1_ax2_fused // 4 % 8, ax0_ax1_ax2_fused % 4]
                                - (
                                    fixed[0, g_1, ax0_ax1_ax2_fused // 4 % 8, ax0_ax1_ax2_fused % 4] + T.int32(128)
                                    >> T.int32(8)
                                )
                                * T.int32(256),
                            ),
                        )
                    )
                for ax0_ax1_fused_1_init in T.vectorized(16):
                    correction_rf[0, 0, ax0_ax1_fused_1_init] = T.int32(0)
                for ax0_ax1_fused_0 in range(2):
                    for ax0_ax1_fused_1 in T.vectorized(16):
                        correction_rf[0, 0, ax0_ax1_fused_1] = correction_rf[0, 0, ax0_ax1_fused_1] - fixed[
                            0, g_1, ax0_ax1_fused_0 * 4 + ax0_ax1_fused_1 // 4, ax0_ax1_fused_1 % 4
                        ] * T.int32(7)
                correction[0, g_1, 0] = T.int32(0)
                for ax0_ax1_fused_1 in range(16):
                    correction[0, g_1, 0] = correction[0, g_1, 0] + correction_rf[0, 0, ax0_ax1_fused_1]
                step[0, g_1, 0] = T.reinterpret("float32", largest[0, 0]) * T.float32(3.0638193572106986e-05)
        for row_0_n_0_fused in T.parallel(2):
            product_local = T.decl_buffer((1, 8), "float32", scope="local")
            for n_1_init in T.vectorized(8):
                product_local[0, n_1_init] = T.float32(0.0)
            for g in range(2):
                dots = T.decl_buffer((1, 1, 2, 8), "int32", scope="local")
                words = T.decl_buffer((1, 8, 8), "uint32")
                for ax1 in range(2):
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.cpu.prefetch",
                            T.call_intrin("handle", "address_of", q[1, g * 4 + ax1 * 2, 0]),
                        )
                    )
                for ax0 in T.unroll(8):
                    for ax1_1 in T.vectorized(8):
                        words[0, ax0, ax1_1] = T.if_then_else(
                            g * 4 + ax0 // 2 < 5, q[row_0_n_0_fused, g * 4 + ax0 // 2, ax1_1], T.uint32(0)
                        ) >> T.Cast("uint32", ax0 % 2 * 4) & T.uint32(252645135)
                for ax0_init in T.unroll(2):
                    for ax1_1_init in T.vectorized(8):
                        dots[0, 0, ax0_init, ax1_1_init] = T.Select(ax0_init < 1, T.int32(0), correction[0, g, 0])
                for ax2 in T.unroll(8):
                    for ax0 in T.unroll(2):
                        T.evaluate(
                            T.call_intrin(
                                "handle",
                                "intrinsic.dot4.avx2",
                                T.call_intrin(
                                    "handle",
                                    "address_of",
                                    dots[0, 0, ax0, 0],
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(8),
                                ),
                                T.call_intrin(
                                    "handle", "address_of", words[0, ax2, 0], T.int64(1), T.int64(1), T.int64(8)
                                ),
                                T.call_intrin(
                                    "handle",
                                    "address_of",
                                    digits[0, g, 0, ax0, ax2, 0],
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(1),
                                    T.int64(4),
                                ),
                            )
                        )
                for n_1 in T.vectorized(8):
                    product_local[0, n_1] = product_local[0, n_1] + T.Cast(
                        "float32", dots[0, 0, 0, n_1] * T.int32(256) + dots[0, 0, 1, n_1]
                    ) * (T.Cast("float32", scale[row_0_n_0_fused, g, n_1]) * step[0, g, 0])
            for ax0 in T.vectorized(8):
                matmul[0, row_0_n_0_fused * 8 + ax0] = product_local[0, ax0]
