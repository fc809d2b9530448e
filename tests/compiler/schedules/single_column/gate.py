# ruff: noqa
# A row at a time, in SIMD lanes that are added up last; the depth is no multiple of the lanes.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear_bias_add(
        var_x: T.handle, w: T.Buffer((1, 20), "float32"), bias: T.Buffer((1,), "float32"), var_add: T.handle
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 20), "float32")
        add = T.match_buffer(var_add, (n, 1), "float32")
        # with T.block("root"):
        matmul = T.alloc_buffer((n, 1), "float32")
        for i0, i1, k in T.grid(n, 1, 20):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], w[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + x[v_i0, v_k] * w[v_i1, v_k]
        for i0, i1 in T.grid(n, 1):
            with T.block("add"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(matmul[v_i0, v_i1], bias[v_i1])
                T.writes(add[v_i0, v_i1])
                add[v_i0, v_i1] = matmul[v_i0, v_i1] + bias[v_i1]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear_bias_add(
        var_x: T.handle, w: T.Buffer((1, 20), "float32"), bias: T.Buffer((1,), "float32"), var_add: T.handle
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "SingleColumn"})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 20), "float32")
        add = T.match_buffer(var_add, (n, 1), "float32")
        for i0_i1_fused in T.parallel(n):
            matmul_local_rf = T.decl_buffer((1, 8, 1), "float32", scope="local")
            matmul_local = T.decl_buffer((1, 1), "float32", scope="local")
            for ax0_1_init in T.vectorized(8):
                matmul_local_rf[0, ax0_1_init, 0] = T.float32(0.0)
            for ax0_0 in range(3):
                for ax0_1 in T.vectorized(8):
                    matmul_local_rf[0, ax0_1, 0] = matmul_local_rf[0, ax0_1, 0] + T.if_then_else(
                        ax0_0 * 8 + ax0_1 < 20,
                        x[i0_i1_fused, ax0_0 * 8 + ax0_1] * w[0, ax0_0 * 8 + ax0_1],
                        T.float32(0.0),
                    )
            matmul_local[0, 0] = T.float32(0.0)
            for ax0_1 in range(8):
                matmul_local[0, 0] = matmul_local[0, 0] + matmul_local_rf[0, ax0_1, 0]
            add[i0_i1_fused, 0] = matmul_local[0, 0] + bias[0]
