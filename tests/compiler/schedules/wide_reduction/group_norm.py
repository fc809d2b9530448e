# ruff: noqa
# The sums of groups, each once, before what reads them.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def group_norm(
        data: T.Buffer((2, 4, 3, 40), "float32"),
        gamma: T.Buffer((4,), "float32"),
        group_norm: T.Buffer((2, 4, 3, 40), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        sum = T.alloc_buffer((2, 2), "float32")
        square_sum = T.alloc_buffer((2, 2), "float32")
        for i0, i1, k2, k3, k in T.grid(2, 2, 3, 40, 2):
            with T.block("sum"):
                v_i0, v_i1, v_k2, v_k3, v_k = T.axis.remap("SSRRR", [i0, i1, k2, k3, k])
                T.reads(data[v_i0, v_i1 * 2 + v_k, v_k2, v_k3])
                T.writes(sum[v_i0, v_i1])
                with T.init():
                    sum[v_i0, v_i1] = T.float32(0.0)
                sum[v_i0, v_i1] = sum[v_i0, v_i1] + data[v_i0, v_i1 * 2 + v_k, v_k2, v_k3]
        for i0, i1, k2, k3, k in T.grid(2, 2, 3, 40, 2):
            with T.block("square_sum"):
                v_i0, v_i1, v_k2, v_k3, v_k = T.axis.remap("SSRRR", [i0, i1, k2, k3, k])
                T.reads(data[v_i0, v_i1 * 2 + v_k, v_k2, v_k3], sum[v_i0, v_i1])
                T.writes(square_sum[v_i0, v_i1])
                with T.init():
                    square_sum[v_i0, v_i1] = T.float32(0.0)
                square_sum[v_i0, v_i1] = square_sum[v_i0, v_i1] + (
                    data[v_i0, v_i1 * 2 + v_k, v_k2, v_k3]
                    - sum[v_i0, v_i1] / (T.float32(3.0) * T.float32(40.0) * T.float32(2.0))
                ) * (
                    data[v_i0, v_i1 * 2 + v_k, v_k2, v_k3]
                    - sum[v_i0, v_i1] / (T.float32(3.0) * T.float32(40.0) * T.float32(2.0))
                )
        for i0, i1, i2, i3 in T.grid(2, 4, 3, 40):
            with T.block("group_norm"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(data[v_i0, v_i1, v_i2, v_i3], sum[v_i0, v_i1 // 2], square_sum[v_i0, v_i1 // 2], gamma[v_i1])
                T.writes(group_norm[v_i0, v_i1, v_i2, v_i3])
                group_norm[v_i0, v_i1, v_i2, v_i3] = (
                    (
                        data[v_i0, v_i1, v_i2, v_i3]
                        - sum[v_i0, v_i1 // 2] / (T.float32(3.0) * T.float32(40.0) * T.float32(2.0))
                    )
                    * T.rsqrt(
                        square_sum[v_i0, v_i1 // 2] / (T.float32(3.0) * T.float32(40.0) * T.float32(2.0))
                        + T.float32(1e-05)
                    )
                    * gamma[v_i1]
                )


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def group_norm(
        data: T.Buffer((2, 4, 3, 40), "float32"),
        gamma: T.Buffer((4,), "float32"),
        group_norm: T.Buffer((2, 4, 3, 40), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "WideReduction"})
        square_sum = T.decl_buffer((2, 6), "float32")
        sum = T.decl_buffer((2, 6), "float32")
        for i0_i1_fused in T.parallel(4):
            sum[i0_i1_fused // 2, i0_i1_fused % 2 + 2] = T.float32(0.0)
            for k2, k3, k in T.grid(3, 40, 2):
                sum[i0_i1_fused // 2, i0_i1_fused % 2 + 2] = (
                    sum[i0_i1_fused // 2, i0_i1_fused % 2 + 2] + data[i0_i1_fused // 2, k + i0_i1_fused % 2 * 2, k2, k3]
                )
        for i0_i1_fused in T.parallel(4):
            square_sum[i0_i1_fused // 2, i0_i1_fused % 2 + 2] = T.float32(0.0)
            for k2, k3, k in T.grid(3, 40, 2):
                square_sum[i0_i1_fused // 2, i0_i1_fused % 2 + 2] = square_sum[
                    i0_i1_fused // 2, i0_i1_fused % 2 + 2
                ] + (
                    data[i0_i1_fused // 2, k + i0_i1_fused % 2 * 2, k2, k3]
                    - sum[i0_i1_fused // 2, i0_i1_fused % 2 + 2] / (T.float32(3.0) * T.float32(40.0) * T.float32(2.0))
                ) * (
                    data[i0_i1_fused // 2, k + i0_i1_fused % 2 * 2, k2, k3]
                    - sum[i0_i1_fused // 2, i0_i1_fused % 2 + 2] / (T.float32(3.0) * T.float32(40.0) * T.float32(2.0))
                )
        for i0_i1_fused in T.parallel(8):
            for i2_i3_fused_0 in range(15):
                for i2_i3_fused_1 in T.vectorized(8):
                    group_norm[
                        i0_i1_fused // 4, i0_i1_fused % 4, i2_i3_fused_0 // 5, i2_i3_fused_1 + i2_i3_fused_0 % 5 * 8
                    ] = (
                        (
                            data[
                                i0_i1_fused // 4,
                                i0_i1_fused % 4,
                                i2_i3_fused_0 // 5,
                                i2_i3_fused_1 + i2_i3_fused_0 % 5 * 8,
                            ]
                            - sum[i0_i1_fused // 4, i0_i1_fused % 4 // 2 - -2]
                            / (T.float32(3.0) * T.float32(40.0) * T.float32(2.0))
                        )
                        * T.rsqrt(
                            square_sum[i0_i1_fused // 4, i0_i1_fused % 4 // 2 - -2]
                            / (T.float32(3.0) * T.float32(40.0) * T.float32(2.0))
                            + T.float32(1e-05)
                        )
                        * gamma[i0_i1_fused % 4]
                    )
