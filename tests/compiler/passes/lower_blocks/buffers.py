# ruff: noqa
# An intermediate buffer is allocated around the smallest statement with all its accesses, in the size that is live
# there: in a tile, a row, between two nests, over several adjacent loops at different offsets.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def tile(var_x: T.handle, var_y: T.handle):
        n = T.int64()
        x = T.match_buffer(var_x, (n, 32), "float32")
        y = T.match_buffer(var_y, (n, 32), "float32")
        part = T.alloc_buffer((n, 32), "float32")
        for i_0, j_0 in T.grid(n // 4, 4):
            for i_1, j_1 in T.grid(4, 8):
                with T.block("part"):
                    vi = T.axis.spatial(n, i_0 * 4 + i_1)
                    vj = T.axis.spatial(32, j_0 * 8 + j_1)
                    part[vi, vj] = x[vi, vj] * T.float32(2)
            for i_1, j_1 in T.grid(4, 8):
                with T.block("out"):
                    vi = T.axis.spatial(n, i_0 * 4 + i_1)
                    vj = T.axis.spatial(32, j_0 * 8 + j_1)
                    y[vi, vj] = part[vi, vj] + T.float32(1)

    @T.prim_func(private=True)
    def neighbours(x: T.Buffer((6, 8), "float32"), y: T.Buffer((6, 6), "float32")):
        doubled = T.alloc_buffer((6, 8), "float32")
        total = T.alloc_buffer((6,), "float32")
        for i in T.parallel(6):
            for j in range(8):
                with T.block("doubled"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    doubled[vi, vj] = x[vi, vj] * T.float32(2)
            for j in range(6):
                with T.block("total"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        total[vi] = T.float32(0)
                    total[vi] = total[vi] + doubled[vi, vj + 2]
            for j in range(6):
                with T.block("out"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = doubled[vi, vj + 1] / total[vi]

    @T.prim_func(private=True)
    def between(x: T.Buffer((6,), "float32"), y: T.Buffer((6,), "float32")):
        whole = T.alloc_buffer((8,), "float32")
        for i in T.parallel(6):
            with T.block("whole"):
                vi = T.axis.spatial(6, i)
                whole[vi + 2] = x[vi]
        for i in T.parallel(6):
            with T.block("out"):
                vi = T.axis.spatial(6, i)
                y[vi] = whole[7 - vi]


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def tile(var_x: T.handle, var_y: T.handle):
        n = T.int64()
        x = T.match_buffer(var_x, (n, 32), "float32")
        y = T.match_buffer(var_y, (n, 32), "float32")
        for i_0, j_0 in T.grid(n // 4, 4):
            part = T.decl_buffer((4, 8), "float32")
            for i_1, j_1 in T.grid(4, 8):
                part[i_1, j_1] = x[i_0 * 4 + i_1, j_0 * 8 + j_1] * T.float32(2.0)
            for i_1, j_1 in T.grid(4, 8):
                y[i_0 * 4 + i_1, j_0 * 8 + j_1] = part[i_1, j_1] + T.float32(1.0)

    @T.prim_func(private=True)
    def neighbours(x: T.Buffer((6, 8), "float32"), y: T.Buffer((6, 6), "float32")):
        for i in T.parallel(6):
            total = T.decl_buffer((1,), "float32")
            doubled = T.decl_buffer((1, 8), "float32")
            for j in range(8):
                doubled[0, j] = x[i, j] * T.float32(2.0)
            total[0] = T.float32(0.0)
            for j in range(6):
                total[0] = total[0] + doubled[0, j + 2]
            for j in range(6):
                y[i, j] = doubled[0, j + 1] / total[0]

    @T.prim_func(private=True)
    def between(x: T.Buffer((6,), "float32"), y: T.Buffer((6,), "float32")):
        whole = T.decl_buffer((6,), "float32")
        for i in T.parallel(6):
            whole[i] = x[i]
        for i in T.parallel(6):
            y[i] = whole[5 - i]
