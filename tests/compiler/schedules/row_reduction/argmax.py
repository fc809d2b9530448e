# ruff: noqa
# The last block reduces, too.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def argmax(x: T.Buffer((3, 32), "float32"), argmax: T.Buffer((3,), "int64")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        extreme = T.alloc_buffer((3,), "float32")
        for i0, k in T.grid(3, 32):
            with T.block("extreme"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(x[v_i0, v_k])
                T.writes(extreme[v_i0])
                with T.init():
                    extreme[v_i0] = T.float32("-inf")
                extreme[v_i0] = T.max(extreme[v_i0], x[v_i0, v_k])
        for i0, k in T.grid(3, 32):
            with T.block("argmax"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(x[v_i0, v_k], extreme[v_i0])
                T.writes(argmax[v_i0])
                with T.init():
                    argmax[v_i0] = 9223372036854775807
                argmax[v_i0] = T.min(argmax[v_i0], T.Select(x[v_i0, v_k] == extreme[v_i0], v_k, 9223372036854775807))


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def argmax(x: T.Buffer((3, 32), "float32"), argmax: T.Buffer((3,), "int64")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "RowReduction"})
        for i0 in T.parallel(3):
            extreme_rf = T.decl_buffer((1, 8), "float32")
            argmax_rf = T.decl_buffer((1, 8), "int64")
            extreme = T.decl_buffer((1,), "float32")
            for ax1_init in T.vectorized(8):
                argmax_rf[0, ax1_init] = 9223372036854775807
            for ax0_1_init in T.vectorized(8):
                extreme_rf[0, ax0_1_init] = T.float32("-inf")
            for ax0_0 in range(4):
                for ax0_1 in T.vectorized(8):
                    extreme_rf[0, ax0_1] = T.max(extreme_rf[0, ax0_1], x[i0, ax0_0 * 8 + ax0_1])
            extreme[0] = T.float32("-inf")
            for ax0_1 in range(8):
                extreme[0] = T.max(extreme[0], extreme_rf[0, ax0_1])
            for ax0 in range(4):
                for ax1 in T.vectorized(8):
                    argmax_rf[0, ax1] = T.min(
                        argmax_rf[0, ax1],
                        T.Select(x[i0, ax0 * 8 + ax1] == extreme[0], ax0 * 8 + ax1, 9223372036854775807),
                    )
            argmax[i0] = 9223372036854775807
            for k_1 in range(8):
                argmax[i0] = T.min(argmax[i0], argmax_rf[0, k_1])
