# ruff: noqa
# The means of images, in lanes along a row.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def mean(x: T.Buffer((2, 4, 3, 40), "float32"), mean: T.Buffer((2, 4), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        sum = T.alloc_buffer((2, 4), "float32")
        for i0, i1, k0, k1 in T.grid(2, 4, 3, 40):
            with T.block("sum"):
                v_i0, v_i1, v_k0, v_k1 = T.axis.remap("SSRR", [i0, i1, k0, k1])
                T.reads(x[v_i0, v_i1, v_k0, v_k1])
                T.writes(sum[v_i0, v_i1])
                with T.init():
                    sum[v_i0, v_i1] = T.float32(0.0)
                sum[v_i0, v_i1] = sum[v_i0, v_i1] + x[v_i0, v_i1, v_k0, v_k1]
        for i0, i1 in T.grid(2, 4):
            with T.block("mean"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(sum[v_i0, v_i1])
                T.writes(mean[v_i0, v_i1])
                mean[v_i0, v_i1] = sum[v_i0, v_i1] / T.float32(120.0)


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def mean(x: T.Buffer((2, 4, 3, 40), "float32"), mean: T.Buffer((2, 4), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "WideReduction"})
        sum = T.decl_buffer((2, 4), "float32")
        for i0_i1_fused in T.parallel(8):
            sum_rf = T.decl_buffer((1, 1, 8), "float32")
            for ax1_init in T.vectorized(8):
                sum_rf[0, 0, ax1_init] = T.float32(0.0)
            for ax0 in range(15):
                for ax1 in T.vectorized(8):
                    sum_rf[0, 0, ax1] = (
                        sum_rf[0, 0, ax1] + x[i0_i1_fused // 4, i0_i1_fused % 4, ax0 // 5, ax1 + ax0 % 5 * 8]
                    )
            sum[i0_i1_fused // 4, i0_i1_fused % 4] = T.float32(0.0)
            for k0_k1_fused_1 in range(8):
                sum[i0_i1_fused // 4, i0_i1_fused % 4] = (
                    sum[i0_i1_fused // 4, i0_i1_fused % 4] + sum_rf[0, 0, k0_k1_fused_1]
                )
        for i0_i1_0_fused in T.parallel(2):
            for i1_1 in T.vectorized(4):
                mean[i0_i1_0_fused, i1_1] = sum[i0_i1_0_fused, i1_1] / T.float32(120.0)
