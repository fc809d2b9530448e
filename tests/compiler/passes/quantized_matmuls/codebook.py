# ruff: noqa
# Codes of two bits are looked up as bytes; the last group is not full. 12 columns do not fill the lanes of the instruction.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(
        x: T.Buffer((1, 40), "float32"),
        q: T.Buffer((3, 8), "uint32"),
        scale: T.Buffer((2, 8), "float16"),
        matmul: T.Buffer((1, 8), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        dequantize = T.alloc_buffer((8, 40), "float32")
        for i0, i1 in T.grid(8, 40):
            with T.block("dequantize"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(q[v_i1 // 16, v_i0], scale[v_i1 // 32, v_i0])
                T.writes(dequantize[v_i0, v_i1])
                T.block_attr({"quantized": {"bits": 2, "group": 32, "layout": "KN", "values": (-100, -20, 20, 127)}})
                dequantize[v_i0, v_i1] = T.Cast(
                    "float32",
                    T.Select(
                        T.Cast("int32", q[v_i1 // 16, v_i0] >> T.Cast("uint32", v_i1 % 16 * 2) & T.uint32(3))
                        <= T.int32(0),
                        T.int32(-100),
                        T.Select(
                            T.Cast("int32", q[v_i1 // 16, v_i0] >> T.Cast("uint32", v_i1 % 16 * 2) & T.uint32(3))
                            <= T.int32(1),
                            T.int32(-20),
                            T.Select(
                                T.Cast("int32", q[v_i1 // 16, v_i0] >> T.Cast("uint32", v_i1 % 16 * 2) & T.uint32(3))
                                <= T.int32(2),
                                T.int32(20),
                                T.int32(127),
                            ),
                        ),
                    ),
                ) * T.Cast("float32", scale[v_i1 // 32, v_i0])
        for i0, i1, k in T.grid(1, 8, 40):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], dequantize[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + x[v_i0, v_k] * dequantize[v_i1, v_k]

    @T.prim_func(private=True)
    def odd_columns(
        x: T.Buffer((1, 64), "float32"),
        q: T.Buffer((12, 8), "uint32"),
        scale: T.Buffer((12, 2), "float16"),
        matmul: T.Buffer((1, 12), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        dequantize = T.alloc_buffer((12, 64), "float32")
        for i0, i1 in T.grid(12, 64):
            with T.block("dequantize"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(q[v_i0, v_i1 // 8], scale[v_i0, v_i1 // 32])
                T.writes(dequantize[v_i0, v_i1])
                T.block_attr({"quantized": {"bits": 4, "group": 32, "layout": "NK", "values": ()}})
                dequantize[v_i0, v_i1] = T.Cast(
                    "float32",
                    T.Cast("int32", q[v_i0, v_i1 // 8] >> T.Cast("uint32", v_i1 % 8 * 4) & T.uint32(15)) - T.int32(7),
                ) * T.Cast("float32", scale[v_i0, v_i1 // 32])
        for i0, i1, k in T.grid(1, 12, 64):
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
        x: T.Buffer((1, 40), "float32"),
        q: T.Buffer((3, 8), "uint32"),
        scale: T.Buffer((2, 8), "float16"),
        matmul: T.Buffer((1, 8), "float32"),
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "quantized_matmul": {
                    "dot": "dot4.avx2.signed",
                    "columns": 8,
                    "rows": 64,
                    "rows_in_registers": 4,
                    "layout": "KN",
                    "sides": 1,
                },
            }
        )
        # with T.block("root"):
        words = T.alloc_buffer((2, 8, 8), "uint32")
        largest = T.alloc_buffer((1, 2), "int32")
        fixed = T.alloc_buffer((1, 2, 8, 4), "int32")
        digits = T.alloc_buffer((1, 2, 1, 8, 4), "int8")
        dots = T.alloc_buffer((1, 2, 1, 8), "int32")
        step = T.alloc_buffer((1, 2), "float32")
        product = T.alloc_buffer((1, 8), "float32")
        for g, step_1, n0 in T.grid(2, 8, 8):
            with T.block("words"):
                v_g, v_step, v_n0 = T.axis.remap("SSS", [g, step_1, n0])
                T.reads(q[v_g * 2 + v_step // 4, v_n0])
                T.writes(words[v_g, v_step, v_n0])
                words[v_g, v_step, v_n0] = T.call_intrin(
                    "uint32",
                    "lookup_bytes",
                    T.if_then_else(v_g * 2 + v_step // 4 < 3, q[v_g * 2 + v_step // 4, v_n0], T.uint32(0))
                    >> T.Cast("uint32", v_step % 4 * 2),
                    T.uint32(2132077724),
                )
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
                T.reads(x[0, v_g * 32 + ((v_step // 4 * 4 + v_byte) * 4 + v_step % 4)], largest[v_row, v_g])
                T.writes(fixed[v_row, v_g, v_step, v_byte])
                fixed[v_row, v_g, v_step, v_byte] = T.reinterpret(
                    "int32",
                    T.if_then_else(
                        v_g * 32 + ((v_step // 4 * 4 + v_byte) * 4 + v_step % 4) < 40,
                        x[0, v_g * 32 + ((v_step // 4 * 4 + v_byte) * 4 + v_step % 4)],
                        T.float32(0.0),
                    )
                    * T.Select(
                        T.reinterpret("float32", largest[v_row, v_g]) > T.float32(1e-30),
                        T.float32(127.0) / T.reinterpret("float32", largest[v_row, v_g]),
                        T.float32(0.0),
                    )
                    + T.float32(12582912.0),
                ) - T.int32(1262485504)
        for row, g, which, step_1, byte in T.grid(1, 2, 1, 8, 4):
            with T.block("digits"):
                v_row, v_g, v_which, v_step, v_byte = T.axis.remap("SSSSS", [row, g, which, step_1, byte])
                T.reads(fixed[v_row, v_g, v_step, v_byte])
                T.writes(digits[v_row, v_g, v_which, v_step, v_byte])
                digits[v_row, v_g, v_which, v_step, v_byte] = T.Cast("int8", fixed[v_row, v_g, v_step, v_byte])
        for row, g, which, n0, step_1, byte in T.grid(1, 2, 1, 8, 8, 4):
            with T.block("dots"):
                v_row, v_g, v_which, v_n0, v_step, v_byte = T.axis.remap("SSSSRR", [row, g, which, n0, step_1, byte])
                T.reads(words[v_g, v_step, v_n0], digits[v_row, v_g, v_which, v_step, v_byte])
                T.writes(dots[v_row, v_g, v_which, v_n0])
                with T.init():
                    dots[v_row, v_g, v_which, v_n0] = T.int32(0)
                dots[v_row, v_g, v_which, v_n0] = dots[v_row, v_g, v_which, v_n0] + (
                    (
                        T.Cast("int32", words[v_g, v_step, v_n0] >> T.Cast("uint32", v_byte * 8) & T.uint32(255))
                        ^ T.int32(128)
                    )
                    - T.int32(128)
                ) * T.Cast("int32", digits[v_row, v_g, v_which, v_step, v_byte])
        for row, g in T.grid(1, 2):
            with T.block("step"):
                v_row, v_g = T.axis.remap("SS", [row, g])
                T.reads(largest[v_row, v_g])
                T.writes(step[v_row, v_g])
                step[v_row, v_g] = T.reinterpret("float32", largest[v_row, v_g]) * T.float32(0.007874015748031496)
        for row, n0, g in T.grid(1, 8, 2):
            with T.block("product"):
                v_row, v_n0, v_g = T.axis.remap("SSR", [row, n0, g])
                T.reads(dots[v_row, v_g, 0, v_n0], scale[v_g, v_n0], step[v_row, v_g])
                T.writes(product[v_row, v_n0])
                with T.init():
                    product[v_row, v_n0] = T.float32(0.0)
                product[v_row, v_n0] = product[v_row, v_n0] + T.Cast("float32", dots[v_row, v_g, 0, v_n0]) * (
                    T.Cast("float32", scale[v_g, v_n0]) * step[v_row, v_g]
                )
        for i0, i1 in T.grid(1, 8):
            with T.block("result"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(product[0, v_i1])
                T.writes(matmul[v_i0, v_i1])
                matmul[v_i0, v_i1] = product[0, v_i1]

    @T.prim_func(private=True)
    def odd_columns(
        x: T.Buffer((1, 64), "float32"),
        q: T.Buffer((12, 8), "uint32"),
        scale: T.Buffer((12, 2), "float16"),
        matmul: T.Buffer((1, 12), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        dequantize = T.alloc_buffer((12, 64), "float32")
        for i0, i1 in T.grid(12, 64):
            with T.block("dequantize"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(q[v_i0, v_i1 // 8], scale[v_i0, v_i1 // 32])
                T.writes(dequantize[v_i0, v_i1])
                T.block_attr({"quantized": {"bits": 4, "group": 32, "layout": "NK", "values": ()}})
                dequantize[v_i0, v_i1] = T.Cast(
                    "float32",
                    T.Cast("int32", q[v_i0, v_i1 // 8] >> T.Cast("uint32", v_i1 % 8 * 4) & T.uint32(15)) - T.int32(7),
                ) * T.Cast("float32", scale[v_i0, v_i1 // 32])
        for i0, i1, k in T.grid(1, 12, 64):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], dequantize[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + x[v_i0, v_k] * dequantize[v_i1, v_k]
