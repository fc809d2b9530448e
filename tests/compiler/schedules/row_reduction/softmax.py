# ruff: noqa
# All blocks inside one row loop; a row of symbolic length is not vectorized.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def softmax(var_x: T.handle, var_softmax: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        n = T.int64()
        m = T.int64()
        x = T.match_buffer(var_x, (n, m), "float32")
        softmax = T.match_buffer(var_softmax, (n, m), "float32")
        # with T.block("root"):
        softmax_max = T.alloc_buffer((n,), "float32")
        softmax_exp = T.alloc_buffer((n, m), "float32")
        softmax_sum = T.alloc_buffer((n,), "float32")
        for i0, k in T.grid(n, m):
            with T.block("softmax_max"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(x[v_i0, v_k])
                T.writes(softmax_max[v_i0])
                with T.init():
                    softmax_max[v_i0] = T.float32("-inf")
                softmax_max[v_i0] = T.max(softmax_max[v_i0], x[v_i0, v_k])
        for i0, i1 in T.grid(n, m):
            with T.block("softmax_exp"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1], softmax_max[v_i0])
                T.writes(softmax_exp[v_i0, v_i1])
                softmax_exp[v_i0, v_i1] = T.exp(x[v_i0, v_i1] - softmax_max[v_i0])
        for i0, k in T.grid(n, m):
            with T.block("softmax_sum"):
                v_i0, v_k = T.axis.remap("SR", [i0, k])
                T.reads(softmax_exp[v_i0, v_k])
                T.writes(softmax_sum[v_i0])
                with T.init():
                    softmax_sum[v_i0] = T.float32(0.0)
                softmax_sum[v_i0] = softmax_sum[v_i0] + softmax_exp[v_i0, v_k]
        for i0, i1 in T.grid(n, m):
            with T.block("softmax"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(softmax_exp[v_i0, v_i1], softmax_sum[v_i0])
                T.writes(softmax[v_i0, v_i1])
                softmax[v_i0, v_i1] = softmax_exp[v_i0, v_i1] / softmax_sum[v_i0]


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def softmax(var_x: T.handle, var_softmax: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "tir.is_scheduled": True, "schedule": "RowReduction"})
        n = T.int64()
        m = T.int64()
        x = T.match_buffer(var_x, (n, m), "float32")
        softmax = T.match_buffer(var_softmax, (n, m), "float32")
        for i0 in T.parallel(n):
            softmax_sum = T.decl_buffer((1,), "float32")
            softmax_exp = T.decl_buffer((1, m), "float32")
            softmax_max = T.decl_buffer((1,), "float32")
            softmax_max[0] = T.float32("-inf")
            for ax0 in range(m):
                softmax_max[0] = T.max(softmax_max[0], x[i0, ax0])
            for ax0 in range(m):
                softmax_exp[0, ax0] = T.exp(x[i0, ax0] - softmax_max[0])
            softmax_sum[0] = T.float32(0.0)
            for ax0 in range(m):
                softmax_sum[0] = softmax_sum[0] + softmax_exp[0, ax0]
            for i1 in range(m):
                softmax[i0, i1] = softmax_exp[0, i1] / softmax_sum[0]
