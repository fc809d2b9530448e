# ruff: noqa
# A function of plain blocks is unscheduled; functions with a parallel loop, with loops without blocks, with an
# instruction, or with a block that overwrites what another has read, are marked.
@I.ir_module
class Module:
    @T.prim_func
    def definition(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 8):
            with T.block("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] = y[vi] + x[vi, vk]

    @T.prim_func
    def parallel(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in T.parallel(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi]

    @T.prim_func
    def loops(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = x[i]

    @T.prim_func
    def overwrites(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi]
        for i in range(4):
            with T.block("x"):
                vi = T.axis.spatial(4, i)
                x[vi] = T.float32(0)

    @T.prim_func
    def instruction(x: T.Buffer((3, 16), "int32"), y: T.Buffer((3, 64), "uint8"), z: T.Buffer((3, 64), "int8")):
        for i in range(3):
            with T.block("dot"):
                T.block_attr({"tensorized": "avx512.vpdpbusd"})
                T.evaluate(
                    T.call_intrin(
                        "handle",
                        "intrinsic.avx512.vpdpbusd",
                        T.call_intrin("handle", "address_of", x[i, 0], T.int64(1), T.int64(16)),
                        T.call_intrin("handle", "address_of", y[i, 0], T.int64(1), T.int64(64)),
                        T.call_intrin("handle", "address_of", z[i, 0], T.int64(1), T.int64(64)),
                    )
                )


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func
    def definition(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4,), "float32")):
        # with T.block("root"):
        for i, k in T.grid(4, 8):
            with T.block("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(x[vi, vk])
                T.writes(y[vi])
                with T.init():
                    y[vi] = T.float32(0.0)
                y[vi] = y[vi] + x[vi, vk]

    @T.prim_func
    def parallel(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        T.func_attr({"tir.is_scheduled": True})
        # with T.block("root"):
        for i in T.parallel(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                T.reads(x[vi])
                T.writes(y[vi])
                y[vi] = x[vi]

    @T.prim_func
    def loops(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        T.func_attr({"tir.is_scheduled": True})
        for i in range(4):
            y[i] = x[i]

    @T.prim_func
    def overwrites(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        T.func_attr({"tir.is_scheduled": True})
        # with T.block("root"):
        for i in range(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                T.reads(x[vi])
                T.writes(y[vi])
                y[vi] = x[vi]
        for i in range(4):
            with T.block("x"):
                vi = T.axis.spatial(4, i)
                T.reads()
                T.writes(x[vi])
                x[vi] = T.float32(0.0)

    @T.prim_func
    def instruction(x: T.Buffer((3, 16), "int32"), y: T.Buffer((3, 64), "uint8"), z: T.Buffer((3, 64), "int8")):
        T.func_attr({"tir.is_scheduled": True})
        # with T.block("root"):
        for i in range(3):
            with T.block("dot"):
                T.reads(x[i, 0], y[i, 0], z[i, 0])
                T.writes()
                T.block_attr({"tensorized": "avx512.vpdpbusd"})
                T.evaluate(
                    T.call_intrin(
                        "handle",
                        "intrinsic.avx512.vpdpbusd",
                        T.call_intrin("handle", "address_of", x[i, 0], T.int64(1), T.int64(16)),
                        T.call_intrin("handle", "address_of", y[i, 0], T.int64(1), T.int64(64)),
                        T.call_intrin("handle", "address_of", z[i, 0], T.int64(1), T.int64(64)),
                    )
                )
