# ruff: noqa
# A product with the matrices of experts is marked.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(
        q: T.Buffer((4, 16, 8), "uint32"),
        scale: T.Buffer((4, 16, 2), "float16"),
        x: T.Buffer((1, 64), "float32"),
        experts: T.Buffer((3,), "int32"),
        rows: T.Buffer((3,), "int32"),
        matmul: T.Buffer((3, 16), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "op_pattern": "matmul", "num_outputs": 1, "activations": (2, 3, 4)})
        # with T.block("root"):
        dequantize = T.alloc_buffer((4, 16, 64), "float32")
        for i0, i1, i2 in T.grid(4, 16, 64):
            with T.block("dequantize"):
                v_i0, v_i1, v_i2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(q[v_i0, v_i1, v_i2 // 8], scale[v_i0, v_i1, v_i2 // 32])
                T.writes(dequantize[v_i0, v_i1, v_i2])
                T.block_attr({"quantized": {"bits": 4, "group": 32, "layout": "NK", "values": ()}})
                dequantize[v_i0, v_i1, v_i2] = T.Cast(
                    "float32",
                    T.Cast("int32", q[v_i0, v_i1, v_i2 // 8] >> T.Cast("uint32", v_i2 % 8 * 4) & T.uint32(15))
                    - T.int32(7),
                ) * T.Cast("float32", scale[v_i0, v_i1, v_i2 // 32])
        for r, n, k in T.grid(3, 16, 64):
            with T.block("matmul"):
                v_r, v_n, v_k = T.axis.remap("SSR", [r, n, k])
                T.reads(x[0, v_k], rows[v_r], dequantize[0:4, v_n, v_k], experts[v_r])
                T.writes(matmul[v_r, v_n])
                with T.init():
                    matmul[v_r, v_n] = T.float32(0.0)
                matmul[v_r, v_n] = (
                    matmul[v_r, v_n]
                    + x[T.max(T.min(T.Cast("int64", rows[v_r]), 0), 0), v_k]
                    * dequantize[T.max(T.min(T.Cast("int64", experts[v_r]), 3), 0), v_n, v_k]
                )


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(
        q: T.Buffer((4, 16, 8), "uint32"),
        scale: T.Buffer((4, 16, 2), "float16"),
        x: T.Buffer((1, 64), "float32"),
        experts: T.Buffer((3,), "int32"),
        rows: T.Buffer((3,), "int32"),
        matmul: T.Buffer((3, 16), "float32"),
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "op_pattern": "matmul",
                "num_outputs": 1,
                "activations": (2, 3, 4),
                "expert_digits": 1,
            }
        )
        # with T.block("root"):
        dequantize = T.alloc_buffer((4, 16, 64), "float32")
        for i0, i1, i2 in T.grid(4, 16, 64):
            with T.block("dequantize"):
                v_i0, v_i1, v_i2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(q[v_i0, v_i1, v_i2 // 8], scale[v_i0, v_i1, v_i2 // 32])
                T.writes(dequantize[v_i0, v_i1, v_i2])
                T.block_attr({"quantized": {"bits": 4, "group": 32, "layout": "NK", "values": ()}})
                dequantize[v_i0, v_i1, v_i2] = T.Cast(
                    "float32",
                    T.Cast("int32", q[v_i0, v_i1, v_i2 // 8] >> T.Cast("uint32", v_i2 % 8 * 4) & T.uint32(15))
                    - T.int32(7),
                ) * T.Cast("float32", scale[v_i0, v_i1, v_i2 // 32])
        for r, n, k in T.grid(3, 16, 64):
            with T.block("matmul"):
                v_r, v_n, v_k = T.axis.remap("SSR", [r, n, k])
                T.reads(x[0, v_k], rows[v_r], dequantize[0:4, v_n, v_k], experts[v_r])
                T.writes(matmul[v_r, v_n])
                with T.init():
                    matmul[v_r, v_n] = T.float32(0.0)
                matmul[v_r, v_n] = (
                    matmul[v_r, v_n]
                    + x[T.max(T.min(T.Cast("int64", rows[v_r]), 0), 0), v_k]
                    * dequantize[T.max(T.min(T.Cast("int64", experts[v_r]), 3), 0), v_n, v_k]
                )
