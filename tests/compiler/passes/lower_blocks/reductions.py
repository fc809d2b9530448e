# ruff: noqa
# Initialisations run before the loops of their reduction, where these begin at zero; loops of one iteration are
# removed.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def cut(x: T.Buffer((4, 20), "float32"), y: T.Buffer((4, 1), "float32")):
        for i, j, k_0, k_1 in T.grid(4, 1, 3, 8):
            with T.block("sum"):
                vi, vj = T.axis.remap("SS", [i, j])
                vk = T.axis.reduce(20, k_0 * 8 + k_1)
                T.where(k_0 * 8 + k_1 < 20)
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + x[vi, vk]

    @T.prim_func(private=True)
    def decomposed(x: T.Buffer((4, 20), "float32"), y: T.Buffer((4,), "float32")):
        for i in T.parallel(4):
            with T.block("sum_init"):
                vi = T.axis.spatial(4, i)
                y[vi] = T.float32(0)
            for k in range(20):
                with T.block("sum_update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    y[vi] = y[vi] + x[vi, vk]

    @T.prim_func(private=True)
    def one_term(x: T.Buffer((4, 1), "float32"), y: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 1):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] = y[vi] + x[vi, vk]

    @T.prim_func(private=True)
    def second_part(x: T.Buffer((4, 20), "float32"), y: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 5):
            with T.block("sum"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.reduce(20, k + 15)
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] = y[vi] + x[vi, vk]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def cut(x: T.Buffer((4, 20), "float32"), y: T.Buffer((4, 1), "float32")):
        for i in range(4):
            y[i, 0] = T.float32(0.0)
            for k_0 in range(3):
                for k_1 in range(T.min(8, 20 - k_0 * 8)):
                    y[i, 0] = y[i, 0] + x[i, k_0 * 8 + k_1]

    @T.prim_func(private=True)
    def decomposed(x: T.Buffer((4, 20), "float32"), y: T.Buffer((4,), "float32")):
        for i in T.parallel(4):
            y[i] = T.float32(0.0)
            for k in range(20):
                y[i] = y[i] + x[i, k]

    @T.prim_func(private=True)
    def one_term(x: T.Buffer((4, 1), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = T.float32(0.0)
            y[i] = y[i] + x[i, 0]

    @T.prim_func(private=True)
    def second_part(x: T.Buffer((4, 20), "float32"), y: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 5):
            y[i] = y[i] + x[i, k + 15]
