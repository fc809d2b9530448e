# ruff: noqa
# Each column reads its own channel; a symbolic number of places.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def conv(var_x: T.handle, w: T.Buffer((12, 1, 3), "float32"), var_conv1d: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (1, n, 12), "float32")
        conv1d = T.match_buffer(var_conv1d, (1, n - 4, 12), "float32")
        # with T.block("root"):
        for i0, i1, i2, k0, c in T.grid(1, n - 4, 12, 3, 1):
            with T.block("conv1d"):
                v_i0, v_i1, v_i2, v_k0, v_c = T.axis.remap("SSSRR", [i0, i1, i2, k0, c])
                T.reads(x[v_i0, v_i1 + v_k0 * 2, v_i2 + v_c], w[v_i2, v_c, v_k0])
                T.writes(conv1d[v_i0, v_i1, v_i2])
                with T.init():
                    conv1d[v_i0, v_i1, v_i2] = T.float32(0.0)
                conv1d[v_i0, v_i1, v_i2] = (
                    conv1d[v_i0, v_i1, v_i2] + x[v_i0, v_i1 + v_k0 * 2, v_i2 + v_c] * w[v_i2, v_c, v_k0]
                )


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def conv(var_x: T.handle, w: T.Buffer((1, 3, 1, 16), "float32"), var_conv1d: T.handle):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "layouts": {"1": T.index_map(lambda i0, i1, i2: (i0 // 16, i2, i1, i0 % 16))},
                "tir.is_scheduled": True,
                "schedule": "Convolution",
            }
        )
        n = T.int64()
        x = T.match_buffer(var_x, (1, n, 12), "float32")
        conv1d = T.match_buffer(var_conv1d, (1, n - 4, 12), "float32")
        for i1_0 in range(n - 4):
            conv1d_local = T.decl_buffer((1, 1, 16), "float32", scope="local")
            for i2_1_init in T.vectorized(16):
                conv1d_local[0, 0, i2_1_init] = T.float32(0.0)
            for k0 in range(3):
                for i2_1 in T.vectorized(16):
                    if i2_1 < 12:
                        conv1d_local[0, 0, i2_1] = (
                            conv1d_local[0, 0, i2_1] + x[0, i1_0 + k0 * 2, i2_1] * w[0, k0, 0, i2_1]
                        )
            for ax0 in T.vectorized(16):
                if ax0 < 12:
                    conv1d[0, i1_0, ax0] = conv1d_local[0, 0, ax0]
