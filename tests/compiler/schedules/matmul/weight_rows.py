# ruff: noqa
# A weight [K, N] is stored in tiles of columns; an activation would stay as it is.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def matmul(x: T.Buffer((4, 24), "float32"), w: T.Buffer((24, 20), "float32"), y: T.Buffer((4, 20), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "activations": (0,)})
        # with T.block("root"):
        for i0, i1, k in T.grid(4, 20, 24):
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
    def matmul(x: T.Buffer((4, 24), "float32"), w: T.Buffer((2, 24, 16), "float32"), y: T.Buffer((4, 20), "float32")):
        T.func_attr(
            {
                "tir.noalias": True,
                "num_outputs": 1,
                "activations": (0,),
                "layouts": {"1": T.index_map(lambda i0, i1: (i1 // 16, i0, i1 % 16))},
                "tir.is_scheduled": True,
                "schedule": "Matmul",
            }
        )
        for i1_0 in T.parallel(2):
            y_local = T.decl_buffer((4, 16), "float32", scope="local")
            for i0_1_init in T.unroll(4):
                for i1_1_init in T.vectorized(16):
                    y_local[i0_1_init, i1_1_init] = T.float32(0.0)
            for k_0 in range(3):
                for ax1 in range(8):
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.cpu.prefetch",
                            T.call_intrin("handle", "address_of", w[i1_0, k_0 * 8 + ax1, 0]),
                        )
                    )
                for k_1 in T.unroll(8):
                    for i0_1 in T.unroll(4):
                        for i1_1 in T.vectorized(16):
                            y_local[i0_1, i1_1] = (
                                y_local[i0_1, i1_1] + x[i0_1, k_0 * 8 + k_1] * w[i1_0, k_0 * 8 + k_1, i1_1]
                            )
            for ax0 in T.unroll(4):
                for ax1 in T.vectorized(16):
                    if i1_0 * 16 + ax1 < 20:
                        y[ax0, i1_0 * 16 + ax1] = y_local[ax0, ax1]
