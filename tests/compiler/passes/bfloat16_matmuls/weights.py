# ruff: noqa
# The activations of a stored weight are rounded once; those of a weight of odd depth, and of an activation, are not.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(var_x: T.handle, w: T.Buffer((16, 6), "bfloat16"), var_silu: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "activations": (0,)})
        n = T.int64()
        x = T.match_buffer(var_x, (1, n, 6), "float32")
        silu = T.match_buffer(var_silu, (1, n, 16), "float32")
        # with T.block("root"):
        matmul = T.alloc_buffer((1, n, 16), "float32")
        for i0, i1, i2, k in T.grid(1, n, 16, 6):
            with T.block("matmul"):
                v_i0, v_i1, v_i2, v_k = T.axis.remap("SSSR", [i0, i1, i2, k])
                T.reads(x[0, v_i1, v_k], w[v_i2, v_k])
                T.writes(matmul[0, v_i1, v_i2])
                with T.init():
                    matmul[0, v_i1, v_i2] = T.float32(0.0)
                matmul[0, v_i1, v_i2] = matmul[0, v_i1, v_i2] + x[0, v_i1, v_k] * T.Cast("float32", w[v_i2, v_k])
        for i0, i1, i2 in T.grid(1, n, 16):
            with T.block("silu"):
                v_i0, v_i1, v_i2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(matmul[0, v_i1, v_i2])
                T.writes(silu[0, v_i1, v_i2])
                silu[0, v_i1, v_i2] = matmul[0, v_i1, v_i2] * T.sigmoid(matmul[0, v_i1, v_i2])

    @T.prim_func(private=True)
    def odd_depth(
        x: T.Buffer((2, 7), "float32"), w: T.Buffer((16, 7), "bfloat16"), matmul: T.Buffer((2, 16), "float32")
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "activations": (0,)})
        # with T.block("root"):
        for i0, i1, k in T.grid(2, 16, 7):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], w[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + x[v_i0, v_k] * T.Cast("float32", w[v_i1, v_k])

    @T.prim_func(private=True)
    def two_activations(
        x: T.Buffer((2, 6), "float32"), w: T.Buffer((16, 6), "bfloat16"), matmul: T.Buffer((2, 16), "float32")
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "activations": (0, 1)})
        # with T.block("root"):
        for i0, i1, k in T.grid(2, 16, 6):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], w[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + x[v_i0, v_k] * T.Cast("float32", w[v_i1, v_k])


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def linear(var_x: T.handle, w: T.Buffer((16, 6), "bfloat16"), var_silu: T.handle):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "activations": (0,)})
        n = T.int64()
        x = T.match_buffer(var_x, (1, n, 6), "float32")
        silu = T.match_buffer(var_silu, (1, n, 16), "float32")
        # with T.block("root"):
        matmul = T.alloc_buffer((1, n, 16), "float32")
        rounded = T.alloc_buffer((1, n, 6), "bfloat16")
        for i0, i1, i2 in T.grid(1, n, 6):
            with T.block("rounded"):
                v_i0, v_i1, v_i2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(x[v_i0, v_i1, v_i2])
                T.writes(rounded[v_i0, v_i1, v_i2])
                rounded[v_i0, v_i1, v_i2] = T.Cast("bfloat16", x[v_i0, v_i1, v_i2])
        for i0, i1, i2, k in T.grid(1, n, 16, 6):
            with T.block("matmul"):
                v_i0, v_i1, v_i2, v_k = T.axis.remap("SSSR", [i0, i1, i2, k])
                T.reads(rounded[0, v_i1, v_k], w[v_i2, v_k])
                T.writes(matmul[0, v_i1, v_i2])
                with T.init():
                    matmul[0, v_i1, v_i2] = T.float32(0.0)
                matmul[0, v_i1, v_i2] = matmul[0, v_i1, v_i2] + T.Cast("float32", rounded[0, v_i1, v_k]) * T.Cast(
                    "float32", w[v_i2, v_k]
                )
        for i0, i1, i2 in T.grid(1, n, 16):
            with T.block("silu"):
                v_i0, v_i1, v_i2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(matmul[0, v_i1, v_i2])
                T.writes(silu[0, v_i1, v_i2])
                silu[0, v_i1, v_i2] = matmul[0, v_i1, v_i2] * T.sigmoid(matmul[0, v_i1, v_i2])

    @T.prim_func(private=True)
    def odd_depth(
        x: T.Buffer((2, 7), "float32"), w: T.Buffer((16, 7), "bfloat16"), matmul: T.Buffer((2, 16), "float32")
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "activations": (0,)})
        # with T.block("root"):
        for i0, i1, k in T.grid(2, 16, 7):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], w[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + x[v_i0, v_k] * T.Cast("float32", w[v_i1, v_k])

    @T.prim_func(private=True)
    def two_activations(
        x: T.Buffer((2, 6), "float32"), w: T.Buffer((16, 6), "bfloat16"), matmul: T.Buffer((2, 16), "float32")
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1, "activations": (0, 1)})
        # with T.block("root"):
        for i0, i1, k in T.grid(2, 16, 6):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], w[v_i1, v_k])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + x[v_i0, v_k] * T.Cast("float32", w[v_i1, v_k])
