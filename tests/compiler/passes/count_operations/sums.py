# ruff: noqa
# Two for each product of floats that is added; rows of unknown number stay a name. Sums of integers, functions without
# sums and functions that are scheduled have no attribute.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(var_x: T.handle, w: T.Buffer((5, 7), "float32"), var_y: T.handle):
        n = T.int64()
        x = T.match_buffer(var_x, (n, 7), "float32")
        y = T.match_buffer(var_y, (n, 5), "float32")
        for i, j, k in T.grid(n, 5, 7):
            with T.block("y"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[v_i, v_j] = T.float32(0.0)
                y[v_i, v_j] = y[v_i, v_j] + x[v_i, v_k] * w[v_j, v_k]

    @T.prim_func(private=True)
    def mean_and_scale(x: T.Buffer((3, 4), "float32"), y: T.Buffer((3, 4), "float32")):
        mean = T.alloc_buffer((3,), "float32")
        for i, k in T.grid(3, 4):
            with T.block("mean"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    mean[v_i] = T.float32(0.0)
                mean[v_i] = mean[v_i] + x[v_i, v_k]
        for i, j in T.grid(3, 4):
            with T.block("y"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                y[v_i, v_j] = x[v_i, v_j] * mean[v_i]

    @T.prim_func(private=True)
    def count(x: T.Buffer((6,), "int32"), y: T.Buffer((1,), "int32")):
        for k in range(6):
            with T.block("y"):
                v_k = T.axis.reduce(6, k)
                with T.init():
                    y[0] = 0
                y[0] = y[0] + x[v_k]

    @T.prim_func(private=True)
    def scheduled(x: T.Buffer((6,), "float32"), y: T.Buffer((1,), "float32")):
        T.func_attr({"tir.is_scheduled": True})
        for k in range(6):
            with T.block("y"):
                v_k = T.axis.reduce(6, k)
                with T.init():
                    y[0] = T.float32(0.0)
                y[0] = y[0] + x[v_k]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(var_x: T.handle, w: T.Buffer((5, 7), "float32"), var_y: T.handle):
        T.func_attr({"operations": "n * 70"})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 7), "float32")
        y = T.match_buffer(var_y, (n, 5), "float32")
        # with T.block("root"):
        for i, j, k in T.grid(n, 5, 7):
            with T.block("y"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                T.reads(x[v_i, v_k], w[v_j, v_k])
                T.writes(y[v_i, v_j])
                with T.init():
                    y[v_i, v_j] = T.float32(0.0)
                y[v_i, v_j] = y[v_i, v_j] + x[v_i, v_k] * w[v_j, v_k]

    @T.prim_func(private=True)
    def mean_and_scale(x: T.Buffer((3, 4), "float32"), y: T.Buffer((3, 4), "float32")):
        T.func_attr({"operations": 12})
        # with T.block("root"):
        mean = T.alloc_buffer((3,), "float32")
        for i, k in T.grid(3, 4):
            with T.block("mean"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                T.reads(x[v_i, v_k])
                T.writes(mean[v_i])
                with T.init():
                    mean[v_i] = T.float32(0.0)
                mean[v_i] = mean[v_i] + x[v_i, v_k]
        for i, j in T.grid(3, 4):
            with T.block("y"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.reads(x[v_i, v_j], mean[v_i])
                T.writes(y[v_i, v_j])
                y[v_i, v_j] = x[v_i, v_j] * mean[v_i]

    @T.prim_func(private=True)
    def count(x: T.Buffer((6,), "int32"), y: T.Buffer((1,), "int32")):
        # with T.block("root"):
        for k in range(6):
            with T.block("y"):
                v_k = T.axis.reduce(6, k)
                T.reads(x[v_k])
                T.writes(y[0])
                with T.init():
                    y[0] = T.int32(0)
                y[0] = y[0] + x[v_k]

    @T.prim_func(private=True)
    def scheduled(x: T.Buffer((6,), "float32"), y: T.Buffer((1,), "float32")):
        T.func_attr({"tir.is_scheduled": True})
        # with T.block("root"):
        for k in range(6):
            with T.block("y"):
                v_k = T.axis.reduce(6, k)
                T.reads(x[v_k])
                T.writes(y[0])
                with T.init():
                    y[0] = T.float32(0.0)
                y[0] = y[0] + x[v_k]
