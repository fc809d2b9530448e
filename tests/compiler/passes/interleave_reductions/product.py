# ruff: noqa
# One accumulator: four parts, of 18 iterations the last two after them. Two: two. Unchanged: four
# accumulators, too few iterations, an unrolled loop, no scratch memory.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def f(a: T.Buffer((64,), "float32"), b: T.Buffer((64, 8), "float32"), out: T.Buffer((4, 8), "float32")):
        one = T.decl_buffer((8,), "float32")
        two = T.decl_buffer((2, 8), "float32")
        four = T.decl_buffer((4, 8), "float32")
        for j in T.vectorized(8):
            one[j] = a[j]
            two[0, j] = a[j]
            two[1, j] = a[j]
        for i in T.unroll(4):
            for j in T.vectorized(8):
                four[i, j] = a[j]
        for k in range(64):
            for j in T.vectorized(8):
                one[j] = one[j] + a[k] * b[k, j]
        for k in range(16):
            for i in T.unroll(2):
                for j in T.vectorized(8):
                    two[i, j] = T.max(a[k + i], two[i, j])
        for k in range(16):
            for inner in T.unroll(4):
                for j in T.vectorized(8):
                    one[j] = one[j] + b[k * 4 + inner, j]
        for k in range(64):
            for i in T.unroll(4):
                for j in T.vectorized(8):
                    four[i, j] = four[i, j] + b[k, j]
        for k in range(18):
            for j in T.vectorized(8):
                one[j] = one[j] + b[k, j]
        for k in range(7):
            for j in T.vectorized(8):
                one[j] = one[j] + b[k, j]
        for k in range(64):
            for j in T.vectorized(8):
                out[0, j] = out[0, j] + b[k, j]
        for k in range(4):
            for j in T.vectorized(8):
                one[j] = one[j] + one[7 - j] * b[k, j]
        for j in T.vectorized(8):
            out[1, j] = one[j]
            out[2, j] = two[0, j] + two[1, j]
            out[3, j] = four[0, j] + four[1, j] + four[2, j] + four[3, j]


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def f(a: T.Buffer((64,), "float32"), b: T.Buffer((64, 8), "float32"), out: T.Buffer((4, 8), "float32")):
        one = T.decl_buffer((8,), "float32")
        two = T.decl_buffer((2, 8), "float32")
        four = T.decl_buffer((4, 8), "float32")
        for j in T.vectorized(8):
            one[j] = a[j]
            two[0, j] = a[j]
            two[1, j] = a[j]
        for i in T.unroll(4):
            for j in T.vectorized(8):
                four[i, j] = a[j]
        with T.decl_buffer((4, 8), "float32") as one_parts:
            for part in T.unroll(4):
                for j in T.vectorized(8):
                    one_parts[part, j] = T.float32(0.0)
            for k in range(16):
                for part in T.unroll(4):
                    for j in T.vectorized(8):
                        one_parts[part, j] = one_parts[part, j] + a[k * 4 + part] * b[k * 4 + part, j]
            for part in T.unroll(4):
                for j in T.vectorized(8):
                    one[j] = one[j] + one_parts[part, j]
        with T.decl_buffer((2, 2, 8), "float32") as two_parts:
            for part in T.unroll(2):
                for i in T.unroll(2):
                    for j in T.vectorized(8):
                        two_parts[part, i, j] = T.float32("-inf")
            for k in range(8):
                for part in T.unroll(2):
                    for i in T.unroll(2):
                        for j in T.vectorized(8):
                            two_parts[part, i, j] = T.max(two_parts[part, i, j], a[k * 2 + part + i])
            for part in T.unroll(2):
                for i in T.unroll(2):
                    for j in T.vectorized(8):
                        two[i, j] = T.max(two[i, j], two_parts[part, i, j])
        for k in range(16):
            for inner in T.unroll(4):
                for j in T.vectorized(8):
                    one[j] = one[j] + b[k * 4 + inner, j]
        for k in range(64):
            for i in T.unroll(4):
                for j in T.vectorized(8):
                    four[i, j] = four[i, j] + b[k, j]
        with T.decl_buffer((4, 8), "float32") as one_parts:
            for part in T.unroll(4):
                for j in T.vectorized(8):
                    one_parts[part, j] = T.float32(0.0)
            for k in range(4):
                for part in T.unroll(4):
                    for j in T.vectorized(8):
                        one_parts[part, j] = one_parts[part, j] + b[k * 4 + part, j]
            for part in T.unroll(4):
                for j in T.vectorized(8):
                    one[j] = one[j] + one_parts[part, j]
            for k in range(2):
                for j in T.vectorized(8):
                    one[j] = one[j] + b[k + 16, j]
        for k in range(7):
            for j in T.vectorized(8):
                one[j] = one[j] + b[k, j]
        for k in range(64):
            for j in T.vectorized(8):
                out[0, j] = out[0, j] + b[k, j]
        for k in range(4):
            for j in T.vectorized(8):
                one[j] = one[j] + one[7 - j] * b[k, j]
        for j in T.vectorized(8):
            out[1, j] = one[j]
            out[2, j] = two[0, j] + two[1, j]
            out[3, j] = four[0, j] + four[1, j] + four[2, j] + four[3, j]
