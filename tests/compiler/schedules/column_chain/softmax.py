# ruff: noqa
# One tile of columns: the maximum, the exponentials and their sum, then the quotients.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def softmax(data: T.Buffer((2, 19, 48), "float32"), softmax: T.Buffer((2, 19, 48), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        softmax_max = T.alloc_buffer((2, 48), "float32")
        softmax_exp = T.alloc_buffer((2, 19, 48), "float32")
        softmax_sum = T.alloc_buffer((2, 48), "float32")
        for i0, i1, k in T.grid(2, 48, 19):
            with T.block("softmax_max"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(data[v_i0, v_k, v_i1])
                T.writes(softmax_max[v_i0, v_i1])
                with T.init():
                    softmax_max[v_i0, v_i1] = T.float32("-inf")
                softmax_max[v_i0, v_i1] = T.max(softmax_max[v_i0, v_i1], data[v_i0, v_k, v_i1])
        for i0, i1, i2 in T.grid(2, 19, 48):
            with T.block("softmax_exp"):
                v_i0, v_i1, v_i2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(data[v_i0, v_i1, v_i2], softmax_max[v_i0, v_i2])
                T.writes(softmax_exp[v_i0, v_i1, v_i2])
                softmax_exp[v_i0, v_i1, v_i2] = T.exp(data[v_i0, v_i1, v_i2] - softmax_max[v_i0, v_i2])
        for i0, i1, k in T.grid(2, 48, 19):
            with T.block("softmax_sum"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(softmax_exp[v_i0, v_k, v_i1])
                T.writes(softmax_sum[v_i0, v_i1])
                with T.init():
                    softmax_sum[v_i0, v_i1] = T.float32(0.0)
                softmax_sum[v_i0, v_i1] = softmax_sum[v_i0, v_i1] + softmax_exp[v_i0, v_k, v_i1]
        for i0, i1, i2 in T.grid(2, 19, 48):
            with T.block("softmax"):
                v_i0, v_i1, v_i2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(softmax_exp[v_i0, v_i1, v_i2], softmax_sum[v_i0, v_i2])
                T.writes(softmax[v_i0, v_i1, v_i2])
                softmax[v_i0, v_i1, v_i2] = softmax_exp[v_i0, v_i1, v_i2] / softmax_sum[v_i0, v_i2]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def softmax(data: T.Buffer((2, 19, 48), "float32"), softmax: T.Buffer((2, 19, 48), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "ColumnChain"})
        for i0_i2_0_fused in T.parallel(4):
            softmax_sum = T.decl_buffer((1, 24), "float32")
            softmax_exp = T.decl_buffer((1, 19, 24), "float32")
            softmax_max = T.decl_buffer((1, 24), "float32")
            for ax0_init in T.vectorized(24):
                softmax_max[0, ax0_init] = T.float32("-inf")
            for ax1 in range(19):
                for ax0 in T.vectorized(24):
                    softmax_max[0, ax0] = T.max(
                        softmax_max[0, ax0], data[i0_i2_0_fused // 2, ax1, ax0 + i0_i2_0_fused % 2 * 24]
                    )
            for ax0 in range(19):
                for ax1 in T.vectorized(24):
                    softmax_exp[0, ax0, ax1] = T.exp(
                        data[i0_i2_0_fused // 2, ax0, ax1 + i0_i2_0_fused % 2 * 24] - softmax_max[0, ax1]
                    )
            for ax0_init in T.vectorized(24):
                softmax_sum[0, ax0_init] = T.float32(0.0)
            for ax1 in range(19):
                for ax0 in T.vectorized(24):
                    softmax_sum[0, ax0] = softmax_sum[0, ax0] + softmax_exp[0, ax1, ax0]
            for i1 in range(19):
                for i2_1 in T.vectorized(24):
                    softmax[i0_i2_0_fused // 2, i1, i2_1 + i0_i2_0_fused % 2 * 24] = (
                        softmax_exp[0, i1, i2_1] / softmax_sum[0, i2_1]
                    )
