# ruff: noqa
# Lanes of scratch memory are combined in a tree; those of an argument, which is not scratch memory, are not.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def largest(x: T.Buffer((8,), "float32"), y: T.Buffer((1,), "float32")):
        T.func_attr({"num_outputs": 1})
        lanes = T.decl_buffer((1, 8), "float32", scope="local")
        for i in T.vectorized(8):
            lanes[0, i] = x[i] * T.float32(2.0)
        y[0] = T.float32("-inf")
        for i in range(8):
            y[0] = T.max(y[0], lanes[0, i])

    @T.prim_func(private=True)
    def of_argument(x: T.Buffer((8,), "float32"), y: T.Buffer((1,), "float32")):
        T.func_attr({"num_outputs": 1})
        y[0] = T.float32("-inf")
        for i in range(8):
            y[0] = T.max(y[0], x[i])


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def largest(x: T.Buffer((8,), "float32"), y: T.Buffer((1,), "float32")):
        T.func_attr({"num_outputs": 1})
        lanes = T.decl_buffer((1, 8), "float32", scope="local")
        for i in T.vectorized(8):
            lanes[0, i] = x[i] * T.float32(2.0)
        y[0] = T.float32("-inf")
        lanes_folded = T.decl_buffer((4,), "float32")
        for lane in T.vectorized(4):
            lanes_folded[lane] = T.max(lanes[0, lane], lanes[0, lane + 4])
        for lane in T.vectorized(2):
            lanes_folded[lane] = T.max(lanes_folded[lane], lanes_folded[lane + 2])
        y[0] = T.max(y[0], T.max(lanes_folded[0], lanes_folded[1]))

    @T.prim_func(private=True)
    def of_argument(x: T.Buffer((8,), "float32"), y: T.Buffer((1,), "float32")):
        T.func_attr({"num_outputs": 1})
        y[0] = T.float32("-inf")
        for i in range(8):
            y[0] = T.max(y[0], x[i])
