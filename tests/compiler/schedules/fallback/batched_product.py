# ruff: noqa
# A short product with a weight of three axes.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def batched(var_x: T.handle, w: T.Buffer((2, 10, 12), "float32"), var_y: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (2, n, 12), "float32")
        y = T.match_buffer(var_y, (2, n, 10), "float32")
        # with T.block("root"):
        for b, i, j, k in T.grid(2, n, 10, 12):
            with T.block("y"):
                v_b, v_i, v_j, v_k = T.axis.remap("SSSR", [b, i, j, k])
                T.reads(x[v_b, v_i, v_k], w[v_b, v_j, v_k])
                T.writes(y[v_b, v_i, v_j])
                with T.init():
                    y[v_b, v_i, v_j] = T.float32(0.0)
                y[v_b, v_i, v_j] = y[v_b, v_i, v_j] + x[v_b, v_i, v_k] * w[v_b, v_j, v_k]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def batched(var_x: T.handle, w: T.Buffer((2, 10, 12), "float32"), var_y: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "Fallback"})
        n = T.int64()
        x = T.match_buffer(var_x, (2, n, 12), "float32")
        y = T.match_buffer(var_y, (2, n, 10), "float32")
        for b_i_j_fused in T.parallel(n * 20):
            y[b_i_j_fused // 10 // n, b_i_j_fused // 10 % n, b_i_j_fused % 10] = T.float32(0.0)
            for k in range(12):
                y[b_i_j_fused // 10 // n, b_i_j_fused // 10 % n, b_i_j_fused % 10] = (
                    y[b_i_j_fused // 10 // n, b_i_j_fused // 10 % n, b_i_j_fused % 10]
                    + x[b_i_j_fused // 10 // n, b_i_j_fused // 10 % n, k]
                    * w[b_i_j_fused // 10 // n, b_i_j_fused % 10, k]
                )
