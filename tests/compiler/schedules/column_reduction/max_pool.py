# ruff: noqa
# The maxima of windows, some of which reach into the padding; 20 channels in lanes.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def pool(x: T.Buffer((2, 5, 6, 20), "float32"), max_pool2d: T.Buffer((2, 3, 3, 20), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        pad = T.alloc_buffer((2, 7, 8, 20), "float32")
        for i0, i1, i2, i3 in T.grid(2, 7, 8, 20):
            with T.block("pad"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(x[v_i0, v_i1 - 1, v_i2 - 1, v_i3])
                T.writes(pad[v_i0, v_i1, v_i2, v_i3])
                pad[v_i0, v_i1, v_i2, v_i3] = T.if_then_else(
                    v_i1 >= 1 and v_i2 >= 1 and v_i1 - 1 < 5 and v_i2 - 1 < 6,
                    x[v_i0, v_i1 - 1, v_i2 - 1, v_i3],
                    T.float32("-inf"),
                )
        for i0, i1, i2, i3, k0, k1 in T.grid(2, 3, 3, 20, 3, 3):
            with T.block("max_pool2d"):
                v_i0, v_i1, v_i2, v_i3, v_k0, v_k1 = T.axis.remap("SSSSRR", [i0, i1, i2, i3, k0, k1])
                T.reads(pad[v_i0, v_i1 * 2 + v_k0, v_i2 * 2 + v_k1, v_i3])
                T.writes(max_pool2d[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    max_pool2d[v_i0, v_i1, v_i2, v_i3] = T.float32("-inf")
                max_pool2d[v_i0, v_i1, v_i2, v_i3] = T.max(
                    max_pool2d[v_i0, v_i1, v_i2, v_i3], pad[v_i0, v_i1 * 2 + v_k0, v_i2 * 2 + v_k1, v_i3]
                )


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def pool(x: T.Buffer((2, 5, 6, 20), "float32"), max_pool2d: T.Buffer((2, 3, 3, 20), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "ColumnReduction"})
        for i0_i1_i2_i3_0_fused in T.parallel(18):
            max_pool2d_local = T.decl_buffer((1, 1, 1, 24), "float32", scope="local")
            for i3_1_init in T.vectorized(24):
                max_pool2d_local[0, 0, 0, i3_1_init] = T.float32("-inf")
            for k0, k1 in T.grid(3, 3):
                for i3_1 in T.vectorized(24):
                    if i3_1 < 20:
                        max_pool2d_local[0, 0, 0, i3_1] = T.max(
                            max_pool2d_local[0, 0, 0, i3_1],
                            T.if_then_else(
                                i0_i1_i2_i3_0_fused // 3 % 3 * 2 + k0 >= 1
                                and k1 + i0_i1_i2_i3_0_fused % 3 * 2 >= 1
                                and i0_i1_i2_i3_0_fused // 3 % 3 * 2 + k0 - 1 < 5,
                                x[
                                    i0_i1_i2_i3_0_fused // 9,
                                    i0_i1_i2_i3_0_fused // 3 % 3 * 2 + k0 - 1,
                                    k1 + i0_i1_i2_i3_0_fused % 3 * 2 - 1,
                                    i3_1,
                                ],
                                T.float32("-inf"),
                            ),
                        )
            for ax0 in T.vectorized(24):
                if ax0 < 20:
                    max_pool2d[i0_i1_i2_i3_0_fused // 9, i0_i1_i2_i3_0_fused // 3 % 3, i0_i1_i2_i3_0_fused % 3, ax0] = (
                        max_pool2d_local[0, 0, 0, ax0]
                    )
