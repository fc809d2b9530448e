# ruff: noqa
# A stored weight and a bias for each expert; the columns do not fill the last tile.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(
        x: T.Buffer((3, 12), "float32"),
        weight: T.Buffer((4, 20, 12), "float16"),
        var_experts: T.handle,
        var_rows: T.handle,
        x_1: T.Buffer((4, 20), "float16"),
        var_add: T.handle,
    ):
        T.func_attr({"tir.noalias": True, "op_pattern": "matmul", "num_outputs": 1, "activations": (0, 2, 3)})
        n = T.int64()
        experts = T.match_buffer(var_experts, (n,), "int32")
        rows = T.match_buffer(var_rows, (n,), "int32")
        add = T.match_buffer(var_add, (n, 20), "float32")
        # with T.block("root"):
        matmul = T.alloc_buffer((n, 20), "float32")
        take = T.alloc_buffer((n, 20), "float16")
        cast = T.alloc_buffer((n, 20), "float32")
        for r, n_1, k in T.grid(n, 20, 12):
            with T.block("matmul"):
                v_r, v_n, v_k = T.axis.remap("SSR", [r, n_1, k])
                T.reads(x[0:3, v_k], rows[v_r], weight[0:4, v_n, v_k], experts[v_r])
                T.writes(matmul[v_r, v_n])
                with T.init():
                    matmul[v_r, v_n] = T.float32(0.0)
                matmul[v_r, v_n] = matmul[v_r, v_n] + x[T.max(T.min(T.Cast("int64", rows[v_r]), 2), 0), v_k] * T.Cast(
                    "float32", weight[T.max(T.min(T.Cast("int64", experts[v_r]), 3), 0), v_n, v_k]
                )
        for i0, i1 in T.grid(n, 20):
            with T.block("take"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x_1[0:4, v_i1], experts[v_i0])
                T.writes(take[v_i0, v_i1])
                take[v_i0, v_i1] = x_1[T.max(T.min(T.Cast("int64", experts[v_i0]), 3), 0), v_i1]
        for i0, i1 in T.grid(n, 20):
            with T.block("cast"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(take[v_i0, v_i1])
                T.writes(cast[v_i0, v_i1])
                cast[v_i0, v_i1] = T.Cast("float32", take[v_i0, v_i1])
        for i0, i1 in T.grid(n, 20):
            with T.block("add"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(matmul[v_i0, v_i1], cast[v_i0, v_i1])
                T.writes(add[v_i0, v_i1])
                add[v_i0, v_i1] = matmul[v_i0, v_i1] + cast[v_i0, v_i1]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(
        x: T.Buffer((3, 12), "float32"),
        weight: T.Buffer((4, 2, 12, 16), "float16"),
        var_experts: T.handle,
        var_rows: T.handle,
        x_1: T.Buffer((4, 20), "float16"),
        var_add: T.handle,
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "op_pattern": "matmul",
                "num_outputs": 1,
                "activations": (0, 2, 3),
                "layouts": {"1": T.index_map(lambda i0, i1, i2: (i0, i1 // 16, i2, i1 % 16))},
                "tir.is_scheduled": True,
                "schedule": "ExpertMatmul",
            }
        )
        n = T.int64()
        experts = T.match_buffer(var_experts, (n,), "int32")
        rows = T.match_buffer(var_rows, (n,), "int32")
        add = T.match_buffer(var_add, (n, 20), "float32")
        for tile in T.parallel(2):
            run = T.decl_buffer((3,), "int64", scope="local")
            run[0] = 0
            while run[0] < n:
                run[1] = 1
                run[2] = T.max(T.min(T.Cast("int64", experts[T.min(run[0], n - 1)]), 3), 0)
                while (
                    run[1] < n - run[0]
                    and T.max(T.min(T.Cast("int64", experts[T.min(run[0] + run[1], n - 1)]), 3), 0) == run[2]
                ):
                    run[1] = run[1] + 1
                for part in range(run[1] // 4):
                    acc = T.decl_buffer((4, 16), "float32", scope="local")
                    for r in T.unroll(4):
                        for c in T.vectorized(16):
                            acc[r, c] = T.float32(0.0)
                    for step in range(2):
                        for part_1 in T.unroll(6):
                            for r in T.unroll(4):
                                for c in T.vectorized(16):
                                    position: T.int64 = step * 6 + part_1
                                    acc[r, c] = acc[r, c] + x[
                                        T.max(T.min(T.Cast("int64", rows[run[0] + part * 4 + r]), 2), 0), position
                                    ] * T.Cast("float32", weight[run[2], tile, position, c])
                    for r in T.unroll(4):
                        for c in T.vectorized(16):
                            if tile * 16 + c < 20:
                                add[run[0] + part * 4 + r, tile * 16 + c] = acc[r, c] + T.Cast(
                                    "float32",
                                    x_1[
                                        T.max(T.min(T.Cast("int64", experts[run[0] + part * 4 + r]), 3), 0),
                                        tile * 16 + c,
                                    ],
                                )
                for row in range(run[1] % 4):
                    acc = T.decl_buffer((1, 16), "float32", scope="local")
                    for r in T.unroll(1):
                        for c in T.vectorized(16):
                            acc[r, c] = T.float32(0.0)
                    for step in range(2):
                        for part in T.unroll(6):
                            for r in T.unroll(1):
                                for c in T.vectorized(16):
                                    position: T.int64 = step * 6 + part
                                    acc[r, c] = acc[r, c] + x[
                                        T.max(T.min(T.Cast("int64", rows[run[0] + run[1] // 4 * 4 + row + r]), 2), 0),
                                        position,
                                    ] * T.Cast("float32", weight[run[2], tile, position, c])
                    for r in T.unroll(1):
                        for c in T.vectorized(16):
                            if tile * 16 + c < 20:
                                add[run[0] + run[1] // 4 * 4 + row + r, tile * 16 + c] = acc[r, c] + T.Cast(
                                    "float32",
                                    x_1[
                                        T.max(
                                            T.min(T.Cast("int64", experts[run[0] + run[1] // 4 * 4 + row + r]), 3), 0
                                        ),
                                        tile * 16 + c,
                                    ],
                                )
                run[0] = run[0] + run[1]
