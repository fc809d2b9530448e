# ruff: noqa
# Codes and scales are stored in tiles, too.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(
        q: T.Buffer((4, 20, 8), "uint32"),
        scale: T.Buffer((4, 20, 2), "float16"),
        x: T.Buffer((1, 40), "float32"),
        experts: T.Buffer((3,), "int32"),
        rows: T.Buffer((3,), "int32"),
        matmul: T.Buffer((3, 20), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "op_pattern": "matmul", "num_outputs": 1, "activations": (2, 3, 4)})
        # with T.block("root"):
        dequantize = T.alloc_buffer((4, 20, 40), "float32")
        for i0, i1, i2 in T.grid(4, 20, 40):
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
        for r, n, k in T.grid(3, 20, 40):
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
        q: T.Buffer((4, 2, 8, 16), "uint32"),
        scale: T.Buffer((4, 2, 2, 16), "float16"),
        x: T.Buffer((1, 40), "float32"),
        experts: T.Buffer((3,), "int32"),
        rows: T.Buffer((3,), "int32"),
        matmul: T.Buffer((3, 20), "float32"),
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "op_pattern": "matmul",
                "num_outputs": 1,
                "activations": (2, 3, 4),
                "layouts": {
                    "0": T.index_map(lambda i0, i1, i2: (i0, i1 // 16, i2, i1 % 16)),
                    "1": T.index_map(lambda i0, i1, i2: (i0, i1 // 16, i2, i1 % 16)),
                },
                "tir.is_scheduled": True,
                "schedule": "ExpertMatmul",
            }
        )
        for tile in T.parallel(2):
            run = T.decl_buffer((3,), "int64", scope="local")
            run[0] = 0
            while run[0] < 3:
                run[1] = 1
                run[2] = T.max(T.min(T.Cast("int64", experts[T.min(run[0], 2)]), 3), 0)
                while (
                    run[1] < 3 - run[0]
                    and T.max(T.min(T.Cast("int64", experts[T.min(run[0] + run[1], 2)]), 3), 0) == run[2]
                ):
                    run[1] = run[1] + 1
                for part in range(run[1] // 4):
                    acc = T.decl_buffer((4, 16), "float32", scope="local")
                    for r in T.unroll(4):
                        for c in T.vectorized(16):
                            acc[r, c] = T.float32(0.0)
                    for step in range(5):
                        for part_1 in T.unroll(8):
                            for r in T.unroll(4):
                                for c in T.vectorized(16):
                                    position: T.int64 = step * 8 + part_1
                                    acc[r, c] = acc[r, c] + x[0, position] * (
                                        T.Cast(
                                            "float32",
                                            T.Cast(
                                                "int32",
                                                q[run[2], tile, position // 8, c] >> T.Cast("uint32", position % 8 * 4)
                                                & T.uint32(15),
                                            )
                                            - T.int32(7),
                                        )
                                        * T.Cast("float32", scale[run[2], tile, position // 32, c])
                                    )
                    for r in T.unroll(4):
                        for c in T.vectorized(16):
                            if tile * 16 + c < 20:
                                matmul[run[0] + part * 4 + r, tile * 16 + c] = acc[r, c]
                for row in range(run[1] % 4):
                    acc = T.decl_buffer((1, 16), "float32", scope="local")
                    for r in T.unroll(1):
                        for c in T.vectorized(16):
                            acc[r, c] = T.float32(0.0)
                    for step in range(5):
                        for part in T.unroll(8):
                            for r in T.unroll(1):
                                for c in T.vectorized(16):
                                    position: T.int64 = step * 8 + part
                                    acc[r, c] = acc[r, c] + x[0, position] * (
                                        T.Cast(
                                            "float32",
                                            T.Cast(
                                                "int32",
                                                q[run[2], tile, position // 8, c] >> T.Cast("uint32", position % 8 * 4)
                                                & T.uint32(15),
                                            )
                                            - T.int32(7),
                                        )
                                        * T.Cast("float32", scale[run[2], tile, position // 32, c])
                                    )
                    for r in T.unroll(1):
                        for c in T.vectorized(16):
                            if tile * 16 + c < 20:
                                matmul[run[0] + run[1] // 4 * 4 + row + r, tile * 16 + c] = acc[r, c]
                run[0] = run[0] + run[1]
