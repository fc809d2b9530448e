# ruff: noqa
# Fewer columns than a tile has: one tile.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def variance(data: T.Buffer((5, 13), "float32"), variance: T.Buffer((13,), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        sum = T.alloc_buffer((13,), "float32")
        square_sum = T.alloc_buffer((13,), "float32")
        for i0, k in T.grid(13, 5):
            with T.block("sum"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(data[v_k, v_i0])
                T.writes(sum[v_i0])
                with T.init():
                    sum[v_i0] = T.float32(0.0)
                sum[v_i0] = sum[v_i0] + data[v_k, v_i0]
        for i0, k in T.grid(13, 5):
            with T.block("square_sum"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(data[v_k, v_i0], sum[v_i0])
                T.writes(square_sum[v_i0])
                with T.init():
                    square_sum[v_i0] = T.float32(0.0)
                square_sum[v_i0] = square_sum[v_i0] + (data[v_k, v_i0] - sum[v_i0] / T.float32(5.0)) * (
                    data[v_k, v_i0] - sum[v_i0] / T.float32(5.0)
                )
        for i0 in range(13):
            with T.block("variance"):
                v_i0 = T.axis.spatial(13, i0)
                T.reads(square_sum[v_i0])
                T.writes(variance[v_i0])
                variance[v_i0] = square_sum[v_i0] / T.float32(5.0)


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def variance(data: T.Buffer((5, 13), "float32"), variance: T.Buffer((13,), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "ColumnChain"})
        square_sum = T.decl_buffer((13,), "float32")
        sum = T.decl_buffer((13,), "float32")
        for ax0_init in T.vectorized(13):
            sum[ax0_init] = T.float32(0.0)
        for ax1 in range(5):
            for ax0 in T.vectorized(13):
                sum[ax0] = sum[ax0] + data[ax1, ax0]
        for ax0_init in T.vectorized(13):
            square_sum[ax0_init] = T.float32(0.0)
        for ax1 in range(5):
            for ax0 in T.vectorized(13):
                square_sum[ax0] = square_sum[ax0] + (data[ax1, ax0] - sum[ax0] / T.float32(5.0)) * (
                    data[ax1, ax0] - sum[ax0] / T.float32(5.0)
                )
        for i0_1 in T.vectorized(13):
            variance[i0_1] = square_sum[i0_1] / T.float32(5.0)
