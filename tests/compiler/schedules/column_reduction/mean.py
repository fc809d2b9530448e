# ruff: noqa
# The means of columns.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def means(var_x: T.handle, mean: T.Buffer((70,), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 70), "float32")
        # with T.block("root"):
        sum = T.alloc_buffer((70,), "float32")
        for i0, k in T.grid(70, n):
            with T.block("sum"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(x[v_k, v_i0])
                T.writes(sum[v_i0])
                with T.init():
                    sum[v_i0] = T.float32(0.0)
                sum[v_i0] = sum[v_i0] + x[v_k, v_i0]
        for i0 in range(70):
            with T.block("mean"):
                v_i0 = T.axis.spatial(70, i0)
                T.reads(sum[v_i0])
                T.writes(mean[v_i0])
                mean[v_i0] = sum[v_i0] / T.Cast("float32", n)


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def means(var_x: T.handle, mean: T.Buffer((70,), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "ColumnReduction"})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 70), "float32")
        for i0_0 in T.parallel(3):
            sum_local = T.decl_buffer((32,), "float32", scope="local")
            for i0_1_init in T.vectorized(32):
                sum_local[i0_1_init] = T.float32(0.0)
            for k in range(n):
                for i0_1 in T.vectorized(32):
                    if i0_0 * 32 + i0_1 < 70:
                        sum_local[i0_1] = sum_local[i0_1] + x[k, i0_0 * 32 + i0_1]
            for ax0 in T.vectorized(32):
                if i0_0 * 32 + ax0 < 70:
                    mean[i0_0 * 32 + ax0] = sum_local[ax0] / T.Cast("float32", n)
