# ruff: noqa
# Matrices that data select are counted: at most one for each row of the result. The dequantized matrices are made of the
# codes of the same expert; x is read by all rows in order.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(q: T.Buffer((6, 5, 7), "int8"), var_x: T.handle, var_experts: T.handle, var_y: T.handle):
        n = T.int64()
        x = T.match_buffer(var_x, (n, 7), "float32")
        experts = T.match_buffer(var_experts, (n,), "int32")
        y = T.match_buffer(var_y, (n, 5), "float32")
        w = T.alloc_buffer((6, 5, 7), "float32")
        for e, j, k in T.grid(6, 5, 7):
            with T.block("w"):
                v_e, v_j, v_k = T.axis.remap("SSS", [e, j, k])
                w[v_e, v_j, v_k] = T.Cast("float32", q[v_e, v_j, v_k])
        for i, j, k in T.grid(n, 5, 7):
            with T.block("y"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[v_i, v_j] = T.float32(0.0)
                y[v_i, v_j] = y[v_i, v_j] + x[v_i, v_k] * w[T.Cast("int64", experts[v_i]), v_j, v_k]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(q: T.Buffer((6, 5, 7), "int8"), var_x: T.handle, var_experts: T.handle, var_y: T.handle):
        T.func_attr({"operations": "n * 70", "gathered": {"0": ("n", 6)}})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 7), "float32")
        experts = T.match_buffer(var_experts, (n,), "int32")
        y = T.match_buffer(var_y, (n, 5), "float32")
        # with T.block("root"):
        w = T.alloc_buffer((6, 5, 7), "float32")
        for e, j, k in T.grid(6, 5, 7):
            with T.block("w"):
                v_e, v_j, v_k = T.axis.remap("SSS", [e, j, k])
                T.reads(q[v_e, v_j, v_k])
                T.writes(w[v_e, v_j, v_k])
                w[v_e, v_j, v_k] = T.Cast("float32", q[v_e, v_j, v_k])
        for i, j, k in T.grid(n, 5, 7):
            with T.block("y"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                T.reads(x[v_i, v_k], w[0:6, v_j, v_k], experts[v_i])
                T.writes(y[v_i, v_j])
                with T.init():
                    y[v_i, v_j] = T.float32(0.0)
                y[v_i, v_j] = y[v_i, v_j] + x[v_i, v_k] * w[T.Cast("int64", experts[v_i]), v_j, v_k]
