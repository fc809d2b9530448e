# ruff: noqa
# Loops over results run in parallel; a single result is computed by one thread.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def sum(var_x: T.handle, var_sum: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (2, n, 12), "float32")
        sum = T.match_buffer(var_sum, (n,), "float32")
        # with T.block("root"):
        for i0, k0, k1 in T.grid(n, 2, 12):
            with T.block("sum"):
                v_i0, v_k0, v_k1 = T.axis.remap("SRR", [i0, k0, k1])
                T.reads(x[v_k0, v_i0, v_k1])
                T.writes(sum[v_i0])
                with T.init():
                    sum[v_i0] = T.float32(0.0)
                sum[v_i0] = sum[v_i0] + x[v_k0, v_i0, v_k1]

    @T.prim_func(private=True)
    def max_all(var_x: T.handle, max: T.Buffer((), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (2, n, 12), "float32")
        # with T.block("root"):
        for k0, k1, k2 in T.grid(2, n, 12):
            with T.block("max"):
                v_k0, v_k1, v_k2 = T.axis.remap("RRR", [k0, k1, k2])
                T.reads(x[v_k0, v_k1, v_k2])
                T.writes(max[()])
                with T.init():
                    max[()] = T.float32("-inf")
                max[()] = T.max(max[()], x[v_k0, v_k1, v_k2])


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def sum(var_x: T.handle, var_sum: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "Fallback"})
        n = T.int64()
        x = T.match_buffer(var_x, (2, n, 12), "float32")
        sum = T.match_buffer(var_sum, (n,), "float32")
        for i0 in T.parallel(n):
            sum[i0] = T.float32(0.0)
            for k0, k1 in T.grid(2, 12):
                sum[i0] = sum[i0] + x[k0, i0, k1]

    @T.prim_func(private=True)
    def max_all(var_x: T.handle, max: T.Buffer((), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "Fallback"})
        n = T.int64()
        x = T.match_buffer(var_x, (2, n, 12), "float32")
        max[()] = T.float32("-inf")
        for k0, k1, k2 in T.grid(2, n, 12):
            max[()] = T.max(max[()], x[k0, k1, k2])
