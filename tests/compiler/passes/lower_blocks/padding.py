# ruff: noqa
# A condition that only guards out-of-bounds registers is dropped. It stays where it guards a sum, memory, an out-of-
# bounds read, or an element that another statement has written.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def tile(x: T.Buffer((20,), "float32"), w: T.Buffer((2, 7, 16), "float32"), y: T.Buffer((20,), "float32")):
        acc = T.alloc_buffer((20,), scope="local")
        for j_0 in T.parallel(2):
            for j_1 in T.vectorized(16):
                with T.block("init"):
                    vj = T.axis.spatial(20, j_0 * 16 + j_1)
                    T.where(j_0 * 16 + j_1 < 20)
                    acc[vj] = T.float32(0)
            for k_0, k_1 in T.grid(2, 4):
                for j_1 in T.vectorized(16):
                    with T.block("update"):
                        vj = T.axis.spatial(20, j_0 * 16 + j_1)
                        vk = T.axis.reduce(7, k_0 * 4 + k_1)
                        T.where(j_0 * 16 + j_1 < 20 and k_0 * 4 + k_1 < 7)
                        acc[vj] = acc[vj] + w[vj // 16, vk, vj % 16]
            for j_1 in T.vectorized(16):
                with T.block("out"):
                    vj = T.axis.spatial(20, j_0 * 16 + j_1)
                    T.where(j_0 * 16 + j_1 < 20)
                    y[vj] = acc[vj] + x[vj]

    @T.prim_func(private=True)
    def reads_outside(x: T.Buffer((20,), "float32"), y: T.Buffer((20,), "float32")):
        copied = T.alloc_buffer((20,), scope="local")
        for i_0 in range(2):
            for i_1 in range(16):
                with T.block("copy"):
                    vi = T.axis.spatial(20, i_0 * 16 + i_1)
                    T.where(i_0 * 16 + i_1 < 20)
                    copied[vi] = x[vi]
            for i_1 in range(16):
                with T.block("out"):
                    vi = T.axis.spatial(20, i_0 * 16 + i_1)
                    T.where(i_0 * 16 + i_1 < 20)
                    y[vi] = copied[vi]

    @T.prim_func(private=True)
    def overwrites(y: T.Buffer((6,), "float32")):
        part = T.alloc_buffer((6,), scope="local")
        for i in range(6):
            with T.block("ones"):
                vi = T.axis.spatial(6, i)
                part[vi] = T.float32(1)
        for i in range(6):
            with T.block("twos"):
                vi = T.axis.spatial(6, i)
                T.where(i < 3)
                part[vi] = T.float32(2)
        for i in range(6):
            with T.block("out"):
                vi = T.axis.spatial(6, i)
                y[vi] = part[vi]

    @T.prim_func(private=True)
    def scattered(rows: T.Buffer((4,), "int64"), y: T.Buffer((4, 6), "float32")):
        part = T.alloc_buffer((4, 6), scope="local")
        for i in T.parallel(4):
            for j_0, j_1 in T.grid(2, 4):
                with T.block("ones"):
                    vi = T.axis.spatial(4, i)
                    vj = T.axis.spatial(6, j_0 * 4 + j_1)
                    T.where(j_0 * 4 + j_1 < 6)
                    part[rows[vi], vj] = T.float32(1)
            for j in range(6):
                with T.block("out"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = part[rows[vi], vj]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def tile(x: T.Buffer((20,), "float32"), w: T.Buffer((2, 7, 16), "float32"), y: T.Buffer((20,), "float32")):
        for j_0 in T.parallel(2):
            acc = T.decl_buffer((16,), "float32", scope="local")
            for j_1 in T.vectorized(16):
                acc[j_1] = T.float32(0.0)
            for k_0 in range(2):
                for k_1 in range(T.min(4, 7 - k_0 * 4)):
                    for j_1 in T.vectorized(16):
                        acc[j_1] = acc[j_1] + w[j_0, k_0 * 4 + k_1, j_1]
            for j_1 in T.vectorized(16):
                if j_0 * 16 + j_1 < 20:
                    y[j_0 * 16 + j_1] = acc[j_1] + x[j_0 * 16 + j_1]

    @T.prim_func(private=True)
    def reads_outside(x: T.Buffer((20,), "float32"), y: T.Buffer((20,), "float32")):
        for i_0 in range(2):
            copied = T.decl_buffer((16,), "float32", scope="local")
            for i_1 in range(T.min(16, 20 - i_0 * 16)):
                copied[i_1] = x[i_0 * 16 + i_1]
            for i_1 in range(T.min(16, 20 - i_0 * 16)):
                y[i_0 * 16 + i_1] = copied[i_1]

    @T.prim_func(private=True)
    def overwrites(y: T.Buffer((6,), "float32")):
        part = T.decl_buffer((6,), "float32", scope="local")
        for i in range(6):
            part[i] = T.float32(1.0)
        for i in range(3):
            part[i] = T.float32(2.0)
        for i in range(6):
            y[i] = part[i]

    @T.prim_func(private=True)
    def scattered(rows: T.Buffer((4,), "int64"), y: T.Buffer((4, 6), "float32")):
        for i in T.parallel(4):
            part = T.decl_buffer((4, 6), "float32", scope="local")
            for j_0 in range(2):
                for j_1 in range(T.min(4, 6 - j_0 * 4)):
                    part[rows[i], j_0 * 4 + j_1] = T.float32(1.0)
            for j in range(6):
                y[i, j] = part[rows[i], j]
