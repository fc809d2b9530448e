# ruff: noqa
# One parallel loop over all but the SIMD lanes; stages are inlined; the last vector is masked.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def take(table: T.Buffer((11, 20), "float32"), var_ids: T.handle, var_take: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        ids = T.match_buffer(var_ids, (n,), "int32")
        take = T.match_buffer(var_take, (n, 20), "float32")
        # with T.block("root"):
        for i0, i1 in T.grid(n, 20):
            with T.block("take"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(table[0:11, v_i1], ids[v_i0])
                T.writes(take[v_i0, v_i1])
                take[v_i0, v_i1] = table[T.max(T.min(T.Cast("int64", ids[v_i0]), 10), 0), v_i1]

    @T.prim_func(private=True)
    def exp_silu(var_x: T.handle, var_silu: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 20), "float32")
        silu = T.match_buffer(var_silu, (n, 20), "float32")
        # with T.block("root"):
        exp = T.alloc_buffer((n, 20), "float32")
        for i0, i1 in T.grid(n, 20):
            with T.block("exp"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1])
                T.writes(exp[v_i0, v_i1])
                exp[v_i0, v_i1] = T.exp(x[v_i0, v_i1])
        for i0, i1 in T.grid(n, 20):
            with T.block("silu"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(exp[v_i0, v_i1])
                T.writes(silu[v_i0, v_i1])
                silu[v_i0, v_i1] = exp[v_i0, v_i1] * T.sigmoid(exp[v_i0, v_i1])


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def take(table: T.Buffer((11, 20), "float32"), var_ids: T.handle, var_take: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "Elementwise"})
        n = T.int64()
        ids = T.match_buffer(var_ids, (n,), "int32")
        take = T.match_buffer(var_take, (n, 20), "float32")
        for i0_i1_0_fused in T.parallel(n * 3):
            for i1_1 in T.vectorized(8):
                if i1_1 + i0_i1_0_fused % 3 * 8 < 20:
                    take[i0_i1_0_fused // 3, i1_1 + i0_i1_0_fused % 3 * 8] = table[
                        T.max(T.min(T.Cast("int64", ids[i0_i1_0_fused // 3]), 10), 0), i1_1 + i0_i1_0_fused % 3 * 8
                    ]

    @T.prim_func(private=True)
    def exp_silu(var_x: T.handle, var_silu: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "Elementwise"})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 20), "float32")
        silu = T.match_buffer(var_silu, (n, 20), "float32")
        for i0_i1_0_fused in T.parallel(n * 3):
            for i1_1 in T.vectorized(8):
                if i1_1 + i0_i1_0_fused % 3 * 8 < 20:
                    silu[i0_i1_0_fused // 3, i1_1 + i0_i1_0_fused % 3 * 8] = T.exp(
                        x[i0_i1_0_fused // 3, i1_1 + i0_i1_0_fused % 3 * 8]
                    ) * T.sigmoid(T.exp(x[i0_i1_0_fused // 3, i1_1 + i0_i1_0_fused % 3 * 8]))
