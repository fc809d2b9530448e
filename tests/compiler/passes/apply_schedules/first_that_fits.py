# ruff: noqa
# The first rule that applies schedules a function and is named by its attribute; scheduled functions stay.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(x: T.Buffer((4, 16), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"num_outputs": 1})
        for i, j in T.grid(4, 16):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(x[vi, vj])
                T.writes(y[vi, vj])
                y[vi, vj] = x[vi, vj] * T.float32(2)

    @T.prim_func(private=True)
    def total(x: T.Buffer((4, 16), "float32"), y: T.Buffer((4,), "float32")):
        T.func_attr({"num_outputs": 1})
        for i, k in T.grid(4, 16):
            with T.block("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(x[vi, vk])
                T.writes(y[vi])
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] = y[vi] + x[vi, vk]

    @T.prim_func(private=True)
    def scheduled(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        T.func_attr({"num_outputs": 1, "tir.is_scheduled": True})
        for i in range(16):
            with T.block("y"):
                vi = T.axis.spatial(16, i)
                T.reads(x[vi])
                T.writes(y[vi])
                y[vi] = x[vi]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(x: T.Buffer((4, 16), "float32"), y: T.Buffer((4, 16), "float32")):
        T.func_attr({"num_outputs": 1, "tir.is_scheduled": True, "schedule": "Elementwise"})
        # with T.block("root"):
        for i_j_0_fused in T.parallel(8):
            for j_1 in T.vectorized(8):
                with T.block("y"):
                    vi = T.axis.spatial(4, i_j_0_fused // 2)
                    vj = T.axis.spatial(16, j_1 + i_j_0_fused % 2 * 8)
                    T.reads(x[vi, vj])
                    T.writes(y[vi, vj])
                    y[vi, vj] = x[vi, vj] * T.float32(2.0)

    @T.prim_func(private=True)
    def total(x: T.Buffer((4, 16), "float32"), y: T.Buffer((4,), "float32")):
        T.func_attr({"num_outputs": 1, "tir.is_scheduled": True, "schedule": "RowReduction"})
        # with T.block("root"):
        y_rf = T.alloc_buffer((4, 8), "float32")
        for i in T.parallel(4):
            for ax1_init in T.vectorized(8):
                with T.block("y_rf_init"):
                    vi, vk_1 = T.axis.remap("SS", [i, ax1_init])
                    T.reads()
                    T.writes(y_rf[vi, vk_1])
                    y_rf[vi, vk_1] = T.float32(0.0)
            for ax0 in range(2):
                for ax1 in T.vectorized(8):
                    with T.block("y_rf_update"):
                        vi, vk_0, vk_1 = T.axis.remap("SRS", [i, ax0, ax1])
                        T.reads(y_rf[vi, vk_1], x[vi, vk_0 * 8 + vk_1])
                        T.writes(y_rf[vi, vk_1])
                        y_rf[vi, vk_1] = y_rf[vi, vk_1] + x[vi, vk_0 * 8 + vk_1]
            for k_1 in range(8):
                with T.block("y"):
                    vi, vk_1 = T.axis.remap("SR", [i, k_1])
                    T.reads(y_rf[vi, vk_1])
                    T.writes(y[vi])
                    with T.init():
                        y[vi] = T.float32(0.0)
                    y[vi] = y[vi] + y_rf[vi, vk_1]

    @T.prim_func(private=True)
    def scheduled(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        T.func_attr({"num_outputs": 1, "tir.is_scheduled": True})
        # with T.block("root"):
        for i in range(16):
            with T.block("y"):
                vi = T.axis.spatial(16, i)
                T.reads(x[vi])
                T.writes(y[vi])
                y[vi] = x[vi]
