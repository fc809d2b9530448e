# ruff: noqa
# The last block reduces as well.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def argmax(x: T.Buffer((9, 40), "float32"), argmax: T.Buffer((40,), "int64")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        extreme = T.alloc_buffer((40,), "float32")
        for i0, k in T.grid(40, 9):
            with T.block("extreme"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(x[v_k, v_i0])
                T.writes(extreme[v_i0])
                with T.init():
                    extreme[v_i0] = T.float32("-inf")
                extreme[v_i0] = T.max(extreme[v_i0], x[v_k, v_i0])
        for i0, k in T.grid(40, 9):
            with T.block("argmax"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(x[v_k, v_i0], extreme[v_i0])
                T.writes(argmax[v_i0])
                with T.init():
                    argmax[v_i0] = 9223372036854775807
                argmax[v_i0] = T.min(argmax[v_i0], T.Select(x[v_k, v_i0] == extreme[v_i0], v_k, 9223372036854775807))


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def argmax(x: T.Buffer((9, 40), "float32"), argmax: T.Buffer((40,), "int64")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "ColumnChain"})
        for i0_0 in T.parallel(5):
            extreme = T.decl_buffer((8,), "float32")
            for ax0_init in T.vectorized(8):
                extreme[ax0_init] = T.float32("-inf")
            for ax1 in range(9):
                for ax0 in T.vectorized(8):
                    extreme[ax0] = T.max(extreme[ax0], x[ax1, i0_0 * 8 + ax0])
            for i0_1_init in T.vectorized(8):
                argmax[i0_0 * 8 + i0_1_init] = 9223372036854775807
            for k in range(9):
                for i0_1 in T.vectorized(8):
                    argmax[i0_0 * 8 + i0_1] = T.min(
                        argmax[i0_0 * 8 + i0_1],
                        T.Select(x[k, i0_0 * 8 + i0_1] == extreme[i0_1], k, 9223372036854775807),
                    )
