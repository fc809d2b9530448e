# ruff: noqa
# Nine places in tiles of five and four, 20 columns in tiles of 16; a bias.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def conv(
        x: T.Buffer((2, 7, 19, 3), "float32"),
        w: T.Buffer((20, 3, 3, 3), "float32"),
        b: T.Buffer((20,), "float32"),
        add: T.Buffer((2, 3, 9, 20), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        conv2d = T.alloc_buffer((2, 3, 9, 20), "float32")
        for i0, i1, i2, i3, k0, k1, c in T.grid(2, 3, 9, 20, 3, 3, 3):
            with T.block("conv2d"):
                v_i0, v_i1, v_i2, v_i3, v_k0, v_k1, v_c = T.axis.remap("SSSSRRR", [i0, i1, i2, i3, k0, k1, c])
                T.reads(x[v_i0, v_i1 * 2 + v_k0, v_i2 * 2 + v_k1, v_c], w[v_i3, v_c, v_k0, v_k1])
                T.writes(conv2d[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    conv2d[v_i0, v_i1, v_i2, v_i3] = T.float32(0.0)
                conv2d[v_i0, v_i1, v_i2, v_i3] = (
                    conv2d[v_i0, v_i1, v_i2, v_i3]
                    + x[v_i0, v_i1 * 2 + v_k0, v_i2 * 2 + v_k1, v_c] * w[v_i3, v_c, v_k0, v_k1]
                )
        for i0, i1, i2, i3 in T.grid(2, 3, 9, 20):
            with T.block("add"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(conv2d[v_i0, v_i1, v_i2, v_i3], b[v_i3])
                T.writes(add[v_i0, v_i1, v_i2, v_i3])
                add[v_i0, v_i1, v_i2, v_i3] = conv2d[v_i0, v_i1, v_i2, v_i3] + b[v_i3]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def conv(
        x: T.Buffer((2, 7, 19, 3), "float32"),
        w: T.Buffer((2, 3, 3, 3, 16), "float32"),
        b: T.Buffer((20,), "float32"),
        add: T.Buffer((2, 3, 9, 20), "float32"),
    ):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "layouts": {"1": T.index_map(lambda i0, i1, i2, i3: (i0 // 16, i2, i3, i1, i0 % 16))},
                "tir.is_scheduled": True,
                "schedule": "Convolution",
            }
        )
        for i3_0_i0_i1_fused in T.parallel(12):
            conv2d_local_p1 = T.decl_buffer((1, 1, 4, 16), "float32", scope="local")
            conv2d_local_p0 = T.decl_buffer((1, 1, 5, 16), "float32", scope="local")
            for i2_1_init in T.unroll(5):
                for i3_1_init in T.vectorized(16):
                    conv2d_local_p0[0, 0, i2_1_init, i3_1_init] = T.float32(0.0)
            for k0, k1 in T.grid(3, 3):
                for c_1 in T.unroll(3):
                    for i2_1 in T.unroll(5):
                        for i3_1 in T.vectorized(16):
                            conv2d_local_p0[0, 0, i2_1, i3_1] = (
                                conv2d_local_p0[0, 0, i2_1, i3_1]
                                + x[i3_0_i0_i1_fused // 3 % 2, k0 + i3_0_i0_i1_fused % 3 * 2, i2_1 * 2 + k1, c_1]
                                * w[i3_0_i0_i1_fused // 6, k0, k1, c_1, i3_1]
                            )
            for ax0 in T.unroll(5):
                for ax1 in T.vectorized(16):
                    if i3_0_i0_i1_fused // 6 * 16 + ax1 < 20:
                        add[i3_0_i0_i1_fused // 3 % 2, i3_0_i0_i1_fused % 3, ax0, i3_0_i0_i1_fused // 6 * 16 + ax1] = (
                            conv2d_local_p0[0, 0, ax0, ax1] + b[i3_0_i0_i1_fused // 6 * 16 + ax1]
                        )
            for i2_1_init in T.unroll(4):
                for i3_1_init in T.vectorized(16):
                    conv2d_local_p1[0, 0, i2_1_init, i3_1_init] = T.float32(0.0)
            for k0, k1 in T.grid(3, 3):
                for c_1 in T.unroll(3):
                    for i2_1 in T.unroll(4):
                        for i3_1 in T.vectorized(16):
                            conv2d_local_p1[0, 0, i2_1, i3_1] = (
                                conv2d_local_p1[0, 0, i2_1, i3_1]
                                + x[i3_0_i0_i1_fused // 3 % 2, k0 + i3_0_i0_i1_fused % 3 * 2, i2_1 * 2 + k1 + 10, c_1]
                                * w[i3_0_i0_i1_fused // 6, k0, k1, c_1, i3_1]
                            )
            for ax0 in T.unroll(4):
                for ax1 in T.vectorized(16):
                    if i3_0_i0_i1_fused // 6 * 16 + ax1 < 20:
                        add[
                            i3_0_i0_i1_fused // 3 % 2, i3_0_i0_i1_fused % 3, ax0 + 5, i3_0_i0_i1_fused // 6 * 16 + ax1
                        ] = conv2d_local_p1[0, 0, ax0, ax1] + b[i3_0_i0_i1_fused // 6 * 16 + ax1]
