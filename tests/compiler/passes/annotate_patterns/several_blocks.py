# ruff: noqa
# Patterns of functions of several blocks: that of the reduction, else the least regular injective one.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def rms_norm(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        s = T.alloc_buffer((4,), "float32")
        for i, k in T.grid(4, 8):
            with T.block("s"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    s[vi] = T.float32(0)
                s[vi] = s[vi] + x[vi, vk] * x[vi, vk]
        for i, j in T.grid(4, 8):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.rsqrt(s[vi])

    @T.prim_func(private=True)
    def linear_to_half(
        x: T.Buffer((4, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float16")
    ):
        s = T.alloc_buffer((4, 16), "float32")
        for i, j, k in T.grid(4, 16, 8):
            with T.block("s"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    s[vi, vj] = T.float32(0)
                s[vi, vj] = s[vi, vj] + x[vi, vk] * w[vj, vk]
        for i, j in T.grid(4, 16):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = T.Cast("float16", s[vi, vj])

    @T.prim_func(private=True)
    def split(x: T.Buffer((4, 8), "float32"), a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("a"):
                vi, vj = T.axis.remap("SS", [i, j])
                a[vi, vj] = x[vi, vj]
        for i, j in T.grid(4, 4):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = x[vi, vj + 4]

    @T.prim_func(private=True)
    def two_matmuls(x: T.Buffer((4, 4), "float32"), w: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):
        s = T.alloc_buffer((4, 4), "float32")
        for i, j, k in T.grid(4, 4, 4):
            with T.block("s"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    s[vi, vj] = T.float32(0)
                s[vi, vj] = s[vi, vj] + x[vi, vk] * w[vj, vk]
        for i, j, k in T.grid(4, 4, 4):
            with T.block("y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + s[vi, vk] * w[vk, vj]


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def rms_norm(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        T.func_attr({"op_pattern": "reduction"})
        # with T.block("root"):
        s = T.alloc_buffer((4,), "float32")
        for i, k in T.grid(4, 8):
            with T.block("s"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(x[vi, vk])
                T.writes(s[vi])
                with T.init():
                    s[vi] = T.float32(0.0)
                s[vi] = s[vi] + x[vi, vk] * x[vi, vk]
        for i, j in T.grid(4, 8):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(x[vi, vj], s[vi])
                T.writes(y[vi, vj])
                y[vi, vj] = x[vi, vj] * T.rsqrt(s[vi])

    @T.prim_func(private=True)
    def linear_to_half(
        x: T.Buffer((4, 8), "float32"), w: T.Buffer((16, 8), "float32"), y: T.Buffer((4, 16), "float16")
    ):
        T.func_attr({"op_pattern": "matmul"})
        # with T.block("root"):
        s = T.alloc_buffer((4, 16), "float32")
        for i, j, k in T.grid(4, 16, 8):
            with T.block("s"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(x[vi, vk], w[vj, vk])
                T.writes(s[vi, vj])
                with T.init():
                    s[vi, vj] = T.float32(0.0)
                s[vi, vj] = s[vi, vj] + x[vi, vk] * w[vj, vk]
        for i, j in T.grid(4, 16):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(s[vi, vj])
                T.writes(y[vi, vj])
                y[vi, vj] = T.Cast("float16", s[vi, vj])

    @T.prim_func(private=True)
    def split(x: T.Buffer((4, 8), "float32"), a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
        T.func_attr({"op_pattern": "injective"})
        # with T.block("root"):
        for i, j in T.grid(4, 4):
            with T.block("a"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(x[vi, vj])
                T.writes(a[vi, vj])
                a[vi, vj] = x[vi, vj]
        for i, j in T.grid(4, 4):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(x[vi, vj + 4])
                T.writes(b[vi, vj])
                b[vi, vj] = x[vi, vj + 4]

    @T.prim_func(private=True)
    def two_matmuls(x: T.Buffer((4, 4), "float32"), w: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):
        T.func_attr({"op_pattern": "opaque"})
        # with T.block("root"):
        s = T.alloc_buffer((4, 4), "float32")
        for i, j, k in T.grid(4, 4, 4):
            with T.block("s"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(x[vi, vk], w[vj, vk])
                T.writes(s[vi, vj])
                with T.init():
                    s[vi, vj] = T.float32(0.0)
                s[vi, vj] = s[vi, vj] + x[vi, vk] * w[vj, vk]
        for i, j, k in T.grid(4, 4, 4):
            with T.block("y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(s[vi, vk], w[vk, vj])
                T.writes(y[vi, vj])
                with T.init():
                    y[vi, vj] = T.float32(0.0)
                y[vi, vj] = y[vi, vj] + s[vi, vk] * w[vk, vj]
