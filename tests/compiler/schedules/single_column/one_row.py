# ruff: noqa
# A constant single row, and a weight [K, 1], which keeps its layout.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def matmul(x: T.Buffer((1, 32), "float32"), w: T.Buffer((32, 1), "float32"), y: T.Buffer((1, 1), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        for i0, i1, k in T.grid(1, 1, 32):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                with T.init():
                    y[v_i0, v_i1] = T.float32(0.0)
                y[v_i0, v_i1] = y[v_i0, v_i1] + x[v_i0, v_k] * w[v_k, v_i1]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def matmul(x: T.Buffer((1, 32), "float32"), w: T.Buffer((32, 1), "float32"), y: T.Buffer((1, 1), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "SingleColumn"})
        y_local_rf = T.decl_buffer((1, 8, 1), "float32", scope="local")
        y_local = T.decl_buffer((1, 1), "float32", scope="local")
        for ax0_1_init in T.vectorized(8):
            y_local_rf[0, ax0_1_init, 0] = T.float32(0.0)
        for ax0_0 in range(4):
            for ax0_1 in T.vectorized(8):
                y_local_rf[0, ax0_1, 0] = y_local_rf[0, ax0_1, 0] + x[0, ax0_0 * 8 + ax0_1] * w[ax0_0 * 8 + ax0_1, 0]
        y_local[0, 0] = T.float32(0.0)
        for ax0_1 in range(8):
            y_local[0, 0] = y_local[0, 0] + y_local_rf[0, ax0_1, 0]
        y[0, 0] = y_local[0, 0]
