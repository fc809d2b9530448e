# ruff: noqa
# Parts of the tensor in parallel, then the parts.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def sum(x: T.Buffer((64, 16), "float32"), sum: T.Buffer((1, 1), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        for i0, i1, k0, k1 in T.grid(1, 1, 64, 16):
            with T.block("sum"):
                v_i0, v_i1, v_k0, v_k1 = T.axis.remap("SSRR", [i0, i1, k0, k1])
                T.reads(x[v_k0, v_k1])
                T.writes(sum[v_i0, v_i1])
                with T.init():
                    sum[v_i0, v_i1] = T.float32(0.0)
                sum[v_i0, v_i1] = sum[v_i0, v_i1] + x[v_k0, v_k1]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def sum(x: T.Buffer((64, 16), "float32"), sum: T.Buffer((1, 1), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "WholeReduction"})
        sum_rf_rf = T.decl_buffer((4, 8, 1, 1), "float32")
        sum_rf = T.decl_buffer((4, 1, 1), "float32")
        for ax0 in range(4):
            for ax2_init in T.vectorized(8):
                sum_rf_rf[ax0, ax2_init, 0, 0] = T.float32(0.0)
            for ax1 in range(32):
                for ax2 in T.vectorized(8):
                    sum_rf_rf[ax0, ax2, 0, 0] = sum_rf_rf[ax0, ax2, 0, 0] + x[ax0 * 16 + ax1 // 2, ax2 + ax1 % 2 * 8]
        for k0_k1_fused_0 in range(4):
            sum_rf[k0_k1_fused_0, 0, 0] = T.float32(0.0)
            for k0_k1_fused_1_1 in range(8):
                sum_rf[k0_k1_fused_0, 0, 0] = (
                    sum_rf[k0_k1_fused_0, 0, 0] + sum_rf_rf[k0_k1_fused_0, k0_k1_fused_1_1, 0, 0]
                )
        sum[0, 0] = T.float32(0.0)
        for k0_k1_fused_0 in range(4):
            sum[0, 0] = sum[0, 0] + sum_rf[k0_k1_fused_0, 0, 0]
