# ruff: noqa
# A row at a time: the sum, then the row in SIMD vectors, the last one masked.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def rms_norm(var_x: T.handle, gain: T.Buffer((20,), "float32"), var_rms_norm: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 20), "float32")
        rms_norm = T.match_buffer(var_rms_norm, (n, 20), "float32")
        # with T.block("root"):
        square_sum = T.alloc_buffer((n,), "float32")
        for i0, k in T.grid(n, 20):
            with T.block("square_sum"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(x[v_i0, v_k])
                T.writes(square_sum[v_i0])
                with T.init():
                    square_sum[v_i0] = T.float32(0.0)
                square_sum[v_i0] = square_sum[v_i0] + x[v_i0, v_k] * x[v_i0, v_k]
        for i0, i1 in T.grid(n, 20):
            with T.block("rms_norm"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1], square_sum[v_i0], gain[v_i1])
                T.writes(rms_norm[v_i0, v_i1])
                rms_norm[v_i0, v_i1] = (
                    x[v_i0, v_i1] * T.rsqrt(square_sum[v_i0] / T.float32(20.0) + T.float32(1e-05)) * gain[v_i1]
                )


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def rms_norm(var_x: T.handle, gain: T.Buffer((20,), "float32"), var_rms_norm: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "RowReduction"})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 20), "float32")
        rms_norm = T.match_buffer(var_rms_norm, (n, 20), "float32")
        for i0 in T.parallel(n):
            square_sum_rf = T.decl_buffer((1, 8), "float32")
            square_sum = T.decl_buffer((1,), "float32")
            for ax0_1_init in T.vectorized(8):
                square_sum_rf[0, ax0_1_init] = T.float32(0.0)
            for ax0_0 in range(3):
                for ax0_1 in T.vectorized(8):
                    square_sum_rf[0, ax0_1] = square_sum_rf[0, ax0_1] + T.if_then_else(
                        ax0_0 * 8 + ax0_1 < 20, x[i0, ax0_0 * 8 + ax0_1] * x[i0, ax0_0 * 8 + ax0_1], T.float32(0.0)
                    )
            square_sum[0] = T.float32(0.0)
            for ax0_1 in range(8):
                square_sum[0] = square_sum[0] + square_sum_rf[0, ax0_1]
            for i1_0 in range(3):
                for i1_1 in T.vectorized(8):
                    if i1_0 * 8 + i1_1 < 20:
                        rms_norm[i0, i1_0 * 8 + i1_1] = (
                            x[i0, i1_0 * 8 + i1_1]
                            * T.rsqrt(square_sum[0] / T.float32(20.0) + T.float32(1e-05))
                            * gain[i1_0 * 8 + i1_1]
                        )
