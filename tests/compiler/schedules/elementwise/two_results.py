# ruff: noqa
# A block whose result is an output gets a separate nest.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def two(var_x: T.handle, var_add: T.handle, var_backwards: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 2})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 20), "float32")
        add = T.match_buffer(var_add, (n, 20), "float32")
        backwards = T.match_buffer(var_backwards, (n, 20), "float32")
        # with T.block("root"):
        for i0, i1 in T.grid(n, 20):
            with T.block("add"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1])
                T.writes(add[v_i0, v_i1])
                add[v_i0, v_i1] = x[v_i0, v_i1] + x[v_i0, v_i1]
        for i, j in T.grid(n, 20):
            with T.block("backwards"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.reads(add[n - 1 - v_i, v_j])
                T.writes(backwards[v_i, v_j])
                backwards[v_i, v_j] = add[n - 1 - v_i, v_j] * T.float32(2.0)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def two(var_x: T.handle, var_add: T.handle, var_backwards: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 2, "tir.is_scheduled": True, "schedule": "Elementwise"})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 20), "float32")
        add = T.match_buffer(var_add, (n, 20), "float32")
        backwards = T.match_buffer(var_backwards, (n, 20), "float32")
        for i0_i1_0_fused in T.parallel(n * 3):
            for i1_1 in T.vectorized(8):
                if i1_1 + i0_i1_0_fused % 3 * 8 < 20:
                    add[i0_i1_0_fused // 3, i1_1 + i0_i1_0_fused % 3 * 8] = (
                        x[i0_i1_0_fused // 3, i1_1 + i0_i1_0_fused % 3 * 8]
                        + x[i0_i1_0_fused // 3, i1_1 + i0_i1_0_fused % 3 * 8]
                    )
        for i_j_0_fused in T.parallel(n * 3):
            for j_1 in T.vectorized(8):
                if j_1 + i_j_0_fused % 3 * 8 < 20:
                    backwards[i_j_0_fused // 3, j_1 + i_j_0_fused % 3 * 8] = add[
                        n - i_j_0_fused // 3 - 1, j_1 + i_j_0_fused % 3 * 8
                    ] * T.float32(2.0)
