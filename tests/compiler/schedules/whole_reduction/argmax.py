# ruff: noqa
# The maximum, then the first index where it is.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def argmax(x: T.Buffer((512,), "float32"), argmax: T.Buffer((), "int64")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        extreme = T.alloc_buffer((), "float32")
        for k in range(512):
            with T.block("extreme"):
                v_k = T.axis.reduce(512, k)
                T.reads(x[v_k])
                T.writes(extreme[()])
                with T.init():
                    extreme[()] = T.float32("-inf")
                extreme[()] = T.max(extreme[()], x[v_k])
        for k in range(512):
            with T.block("argmax"):
                v_k = T.axis.reduce(512, k)
                T.reads(x[v_k], extreme[()])
                T.writes(argmax[()])
                with T.init():
                    argmax[()] = 9223372036854775807
                argmax[()] = T.min(argmax[()], T.Select(x[v_k] == extreme[()], v_k, 9223372036854775807))


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def argmax(x: T.Buffer((512,), "float32"), argmax: T.Buffer((), "int64")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "WholeReduction"})
        argmax_rf = T.decl_buffer((2,), "int64")
        extreme_rf = T.decl_buffer((2,), "float32")
        extreme = T.decl_buffer((), "float32")
        for k_0 in T.parallel(2):
            extreme_rf_rf = T.decl_buffer((1, 8), "float32")
            for ax1_init in T.vectorized(8):
                extreme_rf_rf[0, ax1_init] = T.float32("-inf")
            for ax0 in range(32):
                for ax1 in T.vectorized(8):
                    extreme_rf_rf[0, ax1] = T.max(extreme_rf_rf[0, ax1], x[k_0 * 256 + ax0 * 8 + ax1])
            extreme_rf[k_0] = T.float32("-inf")
            for k_1_1 in range(8):
                extreme_rf[k_0] = T.max(extreme_rf[k_0], extreme_rf_rf[0, k_1_1])
        extreme[()] = T.float32("-inf")
        for k_0 in range(2):
            extreme[()] = T.max(extreme[()], extreme_rf[k_0])
        for k_0 in T.parallel(2):
            argmax_rf_rf = T.decl_buffer((1, 8), "int64")
            for ax1_init in T.vectorized(8):
                argmax_rf_rf[0, ax1_init] = 9223372036854775807
            for ax0 in range(32):
                for ax1 in T.vectorized(8):
                    argmax_rf_rf[0, ax1] = T.min(
                        argmax_rf_rf[0, ax1],
                        T.Select(
                            x[k_0 * 256 + ax0 * 8 + ax1] == extreme[()], k_0 * 256 + ax0 * 8 + ax1, 9223372036854775807
                        ),
                    )
            argmax_rf[k_0] = 9223372036854775807
            for k_1_1 in range(8):
                argmax_rf[k_0] = T.min(argmax_rf[k_0], argmax_rf_rf[0, k_1_1])
        argmax[()] = 9223372036854775807
        for k_0 in range(2):
            argmax[()] = T.min(argmax[()], argmax_rf[k_0])
