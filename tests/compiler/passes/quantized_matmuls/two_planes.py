# ruff: noqa
# Codes of 6 bits: the high plane has the upper two bits of each step of four codes in the bytes of a word.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(
        var_x: T.handle, q: T.Buffer((16, 12), "uint32"), scale: T.Buffer((16, 2), "float16"), var_matmul: T.handle
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 64), "float32")
        matmul = T.match_buffer(var_matmul, (n, 16), "float32")
        # with T.block("root"):
        dequantize = T.alloc_buffer((16, 64), "float32")
        for i0, i1 in T.grid(16, 64):
            with T.block("dequantize"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(
                    q[v_i0, v_i1 // 32 * 6 + v_i1 % 32 // 8],
                    q[v_i0, v_i1 // 32 * 6 + (4 + (v_i1 % 32 // 8 * 2 + v_i1 % 32 % 2) // 4)],
                    scale[v_i0, v_i1 // 32],
                )
                T.writes(dequantize[v_i0, v_i1])
                T.block_attr({"quantized": {"bits": 6, "group": 32, "layout": "NK", "values": ()}})
                dequantize[v_i0, v_i1] = T.Cast(
                    "float32",
                    T.Cast(
                        "int32",
                        q[v_i0, v_i1 // 32 * 6 + v_i1 % 32 // 8] >> T.Cast("uint32", v_i1 % 32 % 8 * 4) & T.uint32(15)
                        | (
                            q[v_i0, v_i1 // 32 * 6 + (4 + (v_i1 % 32 // 8 * 2 + v_i1 % 32 % 2) // 4)]
                            >> T.Cast("uint32", v_i1 % 32 // 2 % 4 * 8 + (v_i1 % 32 // 8 * 2 + v_i1 % 32 % 2) % 4 * 2)
                            & T.uint32(3)
                        )
                        << T.uint32(4),
                    )
                    - T.int32(31),
                ) * T.Cast("float32", scale[v_i0, v_i1 // 32])
        for i0, i1, k in T.grid(n, 16, 64):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], dequantize[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + x[v_i0, v_k] * dequantize[v_i1, v_k]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(
        var_x: T.handle, q: T.Buffer((16, 12), "uint32"), scale: T.Buffer((16, 2), "float16"), var_matmul: T.handle
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "quantized_matmul": {
                    "dot": "dot4.avx2.x2",
                    "columns": 8,
                    "rows": 64,
                    "rows_in_registers": 4,
                    "layout": "NK",
                    "sides": 1,
                },
            }
        )
        n = T.int64()
        x = T.match_buffer(var_x, (n, 64), "float32")
        matmul = T.match_buffer(var_matmul, (n, 16), "float32")
        # with T.block("root"):
        words = T.alloc_buffer((2, 8, 16), "uint32")
        largest = T.alloc_buffer((n, 2), "int32")
        fixed = T.alloc_buffer((n, 2, 8, 4), "int32")
        digits = T.alloc_buffer((n, 2, 1, 8, 4), "int8")
        correction = T.alloc_buffer((n, 2), "int32")
        dots = T.alloc_buffer((n, 2, 1, 16), "int32")
        step = T.alloc_buffer((n, 2), "float32")
        product = T.alloc_buffer((n, 16), "float32")
        for g, step_1, n0 in T.grid(2, 8, 16):
            with T.block("words"):
                v_g, v_step, v_n0 = T.axis.remap("SSS", [g, step_1, n0])
                T.reads(
                    q[v_n0, v_g * 6 + (v_step // 8 * 6 + v_step % 8 // 2)],
                    q[v_n0, v_g * 6 + (v_step // 8 * 6 + (4 + v_step % 8 // 4))],
                )
                T.writes(words[v_g, v_step, v_n0])
                words[v_g, v_step, v_n0] = q[v_n0, v_g * 6 + (v_step // 8 * 6 + v_step % 8 // 2)] >> T.Cast(
                    "uint32", v_step % 8 % 2 * 4
                ) & T.uint32(252645135) | q[v_n0, v_g * 6 + (v_step // 8 * 6 + (4 + v_step % 8 // 4))] >> T.Cast(
                    "uint32", v_step % 8 % 4 * 2
                ) << T.uint32(4) & T.uint32(808464432)
        for row, g, k in T.grid(n, 2, 32):
            with T.block("largest"):
                v_row, v_g, v_k = T.axis.remap("SSR", [row, g, k])
                T.reads(x[v_row, v_g * 32 + v_k])
                T.writes(largest[v_row, v_g])
                with T.init():
                    largest[v_row, v_g] = T.int32(-2147483648)
                largest[v_row, v_g] = T.max(
                    largest[v_row, v_g], T.reinterpret("int32", x[v_row, v_g * 32 + v_k]) & T.int32(2147483647)
                )
        for row, g, step_1, byte in T.grid(n, 2, 8, 4):
            with T.block("fixed"):
                v_row, v_g, v_step, v_byte = T.axis.remap("SSSS", [row, g, step_1, byte])
                T.reads(x[v_row, v_g * 32 + ((v_step // 2 * 4 + v_byte) * 2 + v_step % 2)], largest[v_row, v_g])
                T.writes(fixed[v_row, v_g, v_step, v_byte])
                fixed[v_row, v_g, v_step, v_byte] = T.reinterpret(
                    "int32",
                    x[v_row, v_g * 32 + ((v_step // 2 * 4 + v_byte) * 2 + v_step % 2)]
                    * T.Select(
                        T.reinterpret("float32", largest[v_row, v_g]) > T.float32(1e-30),
                        T.float32(127.0) / T.reinterpret("float32", largest[v_row, v_g]),
                        T.float32(0.0),
                    )
                    + T.float32(12582912.0),
                ) - T.int32(1262485504)
        for row, g, which, step_1, byte in T.grid(n, 2, 1, 8, 4):
            with T.block("digits"):
                v_row, v_g, v_which, v_step, v_byte = T.axis.remap("SSSSS", [row, g, which, step_1, byte])
                T.reads(fixed[v_row, v_g, v_step, v_byte])
                T.writes(digits[v_row, v_g, v_which, v_step, v_byte])
                digits[v_row, v_g, v_which, v_step, v_byte] = T.Cast("int8", fixed[v_row, v_g, v_step, v_byte])
        for row, g, step_1, byte in T.grid(n, 2, 8, 4):
            with T.block("correction"):
                v_row, v_g, v_step, v_byte = T.axis.remap("SSRR", [row, g, step_1, byte])
                T.reads(fixed[v_row, v_g, v_step, v_byte])
                T.writes(correction[v_row, v_g])
                with T.init():
                    correction[v_row, v_g] = T.int32(0)
                correction[v_row, v_g] = correction[v_row, v_g] + fixed[v_row, v_g, v_step, v_byte] * T.int32(-31)
        for row, g, which, n0, step_1, byte in T.grid(n, 2, 1, 16, 8, 4):
            with T.block("dots"):
                v_row, v_g, v_which, v_n0, v_step, v_byte = T.axis.remap("SSSSRR", [row, g, which, n0, step_1, byte])
                T.reads(correction[v_row, v_g], words[v_g, v_step, v_n0], digits[v_row, v_g, v_which, v_step, v_byte])
                T.writes(dots[v_row, v_g, v_which, v_n0])
                with T.init():
                    dots[v_row, v_g, v_which, v_n0] = T.Select(v_which < 0, T.int32(0), correction[v_row, v_g])
                dots[v_row, v_g, v_which, v_n0] = dots[v_row, v_g, v_which, v_n0] + T.Cast(
                    "int32", words[v_g, v_step, v_n0] >> T.Cast("uint32", v_byte * 8) & T.uint32(255)
                ) * T.Cast("int32", digits[v_row, v_g, v_which, v_step, v_byte])
        for row, g in T.grid(n, 2):
            with T.block("step"):
                v_row, v_g = T.axis.remap("SS", [row, g])
                T.reads(largest[v_row, v_g])
                T.writes(step[v_row, v_g])
                step[v_row, v_g] = T.reinterpret("float32", largest[v_row, v_g]) * T.float32(0.007874015748031496)
        for row, n0, g in T.grid(n, 16, 2):
            with T.block("product"):
                v_row, v_n0, v_g = T.axis.remap("SSR", [row, n0, g])
                T.reads(dots[v_row, v_g, 0, v_n0], scale[v_n0, v_g], step[v_row, v_g])
                T.writes(product[v_row, v_n0])
                with T.init():
                    product[v_row, v_n0] = T.float32(0.0)
                product[v_row, v_n0] = product[v_row, v_n0] + T.Cast("float32", dots[v_row, v_g, 0, v_n0]) * (
                    T.Cast("float32", scale[v_n0, v_g]) * step[v_row, v_g]
                )
        for i0, i1 in T.grid(n, 16):
            with T.block("result"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(product[v_i0, v_i1])
                T.writes(matmul[v_i0, v_i1])
                matmul[v_i0, v_i1] = product[v_i0, v_i1]
