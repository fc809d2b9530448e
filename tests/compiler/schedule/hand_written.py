"""Hand-written functions: loop-carried dependences, several outputs, in-place updates, imperfect nests."""

from __future__ import annotations

HAND_WRITTEN = {
    "overwritten": """
def main(A: T.Buffer((6,), "float32"), B: T.Buffer((6,), "float32")):
    t = T.alloc_buffer((6,), "float32")
    for i in range(6):
        with T.block("t"):
            v = T.axis.spatial(6, i)
            t[v] = A[v] + 1.0
    for i in range(6):
        with T.block("scale"):
            v = T.axis.spatial(6, i)
            A[v] = A[v] * 2.0
    for i in range(6):
        with T.block("out"):
            v = T.axis.spatial(6, i)
            B[v] = t[v] - A[v]
""",
    "shared-loop": """
def main(A: T.Buffer((9,), "float32"), B: T.Buffer((8,), "float32")):
    t = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("t"):
            v = T.axis.spatial(8, i)
            t[v] = A[v + 1] + A[v]
        with T.block("scale"):
            v = T.axis.spatial(8, i)
            A[v] = A[v] * 2.0
        with T.block("out"):
            v = T.axis.spatial(8, i)
            B[v] = t[v] * A[v]
""",
    "scan": """
def main(A: T.Buffer((4, 7), "float32"), S: T.Buffer((4, 7), "float32"), D: T.Buffer((4, 7), "float32")):
    for i, j in T.grid(4, 7):
        with T.block("scan"):
            vi, vj = T.axis.remap("SS", [i, j])
            S[vi, vj] = A[vi, vj] + T.if_then_else(vj > 0, S[vi, vj - 1], T.float32(0))
    for i, j in T.grid(4, 7):
        with T.block("double"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = S[vi, vj] * 2.0
""",
    "argmax": """
def main(A: T.Buffer((5, 8), "float32"), at: T.Buffer((5,), "int32"), best: T.Buffer((5,), "float32")):
    for i, k in T.grid(5, 8):
        with T.block("argmax"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                at[vi] = -1
                best[vi] = -100.0
            at[vi] = T.Select(A[vi, vk] > best[vi], T.Cast("int32", vk), at[vi])
            best[vi] = T.Select(A[vi, vk] > best[vi], A[vi, vk], best[vi])
""",
    "horner": """
def main(A: T.Buffer((3, 5), "float32"), H: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 5):
        with T.block("horner"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                H[vi] = 0.0
            H[vi] = H[vi] * 2.0 + A[vi, vk]
""",
    "biased-start": """
def main(A: T.Buffer((4, 6), "float32"), b: T.Buffer((4,), "float32"), S: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 6):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = b[vi]
            S[vi] = S[vi] + A[vi, vk]
""",
    "steps-in-time": """
def main(A: T.Buffer((10,), "float32"), B: T.Buffer((10,), "float32")):
    for t in range(3):
        for i in range(10):
            with T.block("there"):
                vt, v = T.axis.remap("SS", [t, i])
                B[v] = A[v] + T.if_then_else(v > 0, A[v - 1], T.float32(0))
        for i in range(10):
            with T.block("back"):
                vt, v = T.axis.remap("SS", [t, i])
                A[v] = B[v] * 0.5
""",
    "triangle": """
def main(A: T.Buffer((6, 6), "float32"), L: T.Buffer((6, 6), "float32"), S: T.Buffer((6,), "float32")):
    for i, j in T.grid(6, 6):
        with T.block("lower"):
            vi, vj = T.axis.remap("SS", [i, j])
            L[vi, vj] = T.if_then_else(vj <= vi, A[vi, vj], T.float32(0))
    for i in range(6):
        for k in range(i + 1):
            with T.block("sums"):
                vi = T.axis.spatial(6, i)
                vk = T.axis.reduce(6, k)
                with T.init():
                    S[vi] = 0.0
                S[vi] = S[vi] + L[vi, vk] * L[vk, vk]
""",
    "where": """
def main(A: T.Buffer((11,), "float32"), B: T.Buffer((11,), "float32")):
    t = T.alloc_buffer((11,), "float32")
    for i, j in T.grid(3, 4):
        with T.block("t"):
            v = T.axis.spatial(11, i * 4 + j)
            T.where(i * 4 + j < 11)
            t[v] = A[10 - v] + 1.0
    for i in range(11):
        with T.block("out"):
            v = T.axis.spatial(11, i)
            B[v] = t[v] * A[v // 2] + t[v - v % 3]
""",
    "flattened": """
def main(A: T.Buffer((3, 4), "float32"), B: T.Buffer((12,), "float32"), C: T.Buffer((4, 3), "float32")):
    for i, j in T.grid(3, 4):
        with T.block("flat"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi * 4 + vj] = A[vi, vj] + 1.0
    for i, j in T.grid(4, 3):
        with T.block("again"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi * 3 + vj] * 2.0
""",
    "histogram": """
def main(A: T.Buffer((12,), "int32"), H: T.Buffer((9,), "float32"), W: T.Buffer((12,), "float32")):
    for b in range(9):
        with T.block("zero"):
            v = T.axis.spatial(9, b)
            H[v] = 0.0
    for i in range(12):
        with T.block("count"):
            v = T.axis.reduce(12, i)
            H[A[v] + 4] = H[A[v] + 4] + 1.0
    for i in range(12):
        with T.block("look"):
            v = T.axis.spatial(12, i)
            W[v] = H[A[v] + 4]
""",
    "conditions": """
def main(A: T.Buffer((5, 6), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((5,), "float32")):
    t = T.alloc_buffer((5, 6), "float32")
    for i, j in T.grid(5, 6):
        with T.block("t"):
            vi, vj = T.axis.remap("SS", [i, j])
            if A[vi, vj] > T.float32(0):
                t[vi, vj] = A[vi, vj]
            else:
                t[vi, vj] = -A[vi, vj]
    for i in range(5):
        with T.block("row"):
            vi = T.axis.spatial(5, i)
            C[vi] = 0.0
            for j in range(6):
                B[vi, j] = t[vi, j] + 1.0
                C[vi] = C[vi] + B[vi, j]
""",
    "two-stores": """
def main(A: T.Buffer((4, 5), "float32"), P: T.Buffer((4, 5), "float32"), Q: T.Buffer((4, 5), "float32")):
    s = T.alloc_buffer((4, 5), "float32")
    d = T.alloc_buffer((4, 5), "float32")
    for i, j in T.grid(4, 5):
        with T.block("both"):
            vi, vj = T.axis.remap("SS", [i, j])
            s[vi, vj] = A[vi, vj] + 1.0
            d[vi, vj] = A[vi, vj] - 1.0
    for i, j in T.grid(4, 5):
        with T.block("p"):
            vi, vj = T.axis.remap("SS", [i, j])
            P[vi, vj] = s[vi, vj] * d[vi, vj]
    for i, j in T.grid(4, 5):
        with T.block("q"):
            vi, vj = T.axis.remap("SS", [i, j])
            Q[vi, vj] = s[vi, vj] + P[vi, vj]
""",
    "outer-block": """
def main(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6, 8), "float32"), S: T.Buffer((6,), "float32")):
    for i in range(6):
        with T.block("outer"):
            vo = T.axis.spatial(6, i)
            t = T.alloc_buffer((8,), "float32")
            for j in range(8):
                with T.block("t"):
                    v = T.axis.spatial(8, j)
                    t[v] = A[vo, v] * 2.0
            for j in range(8):
                with T.block("b"):
                    v = T.axis.spatial(8, j)
                    B[vo, v] = t[v] + t[7 - v]
            for j in range(8):
                with T.block("s"):
                    v = T.axis.reduce(8, j)
                    with T.init():
                        S[vo] = 0.0
                    S[vo] = S[vo] + t[v]
""",
    "strided": """
def main(A: T.Buffer((13,), "float32"), B: T.Buffer((6,), "float32"), C: T.Buffer((12,), "float32")):
    for i in range(6):
        with T.block("even"):
            v = T.axis.spatial(6, i)
            B[v] = A[v * 2] + A[v * 2 + 1]
    for i in range(6):
        with T.block("left"):
            v = T.axis.spatial(6, i)
            C[v * 2] = B[v]
    for i in range(6):
        with T.block("right"):
            v = T.axis.spatial(6, i)
            C[v * 2 + 1] = B[5 - v] + C[v * 2]
""",
    "max-then-sum": """
def main(A: T.Buffer((4, 6), "float32"), out: T.Buffer((4,), "float32")):
    m = T.alloc_buffer((4,), "float32")
    for i in range(4):
        for k in range(6):
            with T.block("m"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    m[vi] = -100.0
                m[vi] = T.max(m[vi], A[vi, vk])
        for k in range(6):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    out[vi] = 0.0
                out[vi] = out[vi] + (A[vi, vk] - m[vi])
""",
    "updates": """
def main(A: T.Buffer((5, 4), "float32"), S: T.Buffer((4,), "float32")):
    for j in range(4):
        with T.block("start"):
            v = T.axis.spatial(4, j)
            S[v] = 1.0
    for i, j in T.grid(5, 4):
        with T.block("add"):
            vi, vj = T.axis.remap("RS", [i, j])
            S[vj] = S[vj] + A[vi, vj]
    for i, j in T.grid(5, 4):
        with T.block("more"):
            vi, vj = T.axis.remap("RS", [i, j])
            S[vj] = S[vj] + A[vi, vj] * 2.0
""",
    "integers": """
def main(A: T.Buffer((7, 4), "uint8"), B: T.Buffer((7, 4), "int8"), C: T.Buffer((7,), "int32")):
    w = T.alloc_buffer((7, 4), "int32")
    for i, j in T.grid(7, 4):
        with T.block("wide"):
            vi, vj = T.axis.remap("SS", [i, j])
            w[vi, vj] = T.Cast("int32", A[vi, vj]) * T.Cast("int32", B[vi, vj])
    for i, k in T.grid(7, 4):
        with T.block("dot"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + w[vi, vk]
""",
    "symbolic-stencil": """
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n + 2,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    t = T.alloc_buffer((n + 2,), "float32")
    for i in range(n + 2):
        with T.block("t"):
            v = T.axis.spatial(n + 2, i)
            t[v] = A[v] * 3.0
    for i in range(n):
        with T.block("near"):
            v = T.axis.spatial(n, i)
            B[v] = t[v] + t[v + 1] + t[v + 2]
""",
    "let-and-local": """
def main(A: T.Buffer((6, 4), "float32"), B: T.Buffer((6, 4), "float32")):
    acc = T.alloc_buffer((1,), "float32", scope="local")
    for i in range(6):
        with T.block("zero"):
            vi = T.axis.spatial(6, i)
            acc[0] = 0.0
        for j in range(4):
            with T.block("step"):
                vi, vj = T.axis.remap("SS", [i, j])
                x: T.float32 = A[vi, vj] * 2.0
                acc[0] = acc[0] + x
                B[vi, vj] = acc[0] + x
""",
    "partly-overwritten": """
def main(A: T.Buffer((8,)), B: T.Buffer((8,)), at: T.Buffer((3,), "int32"), D: T.Buffer((9,)), C: T.Buffer((9,))):
    for i in range(4):
        with T.block("even"):
            v = T.axis.spatial(4, i)
            A[v * 2] = 0.0
    for i in range(8):
        with T.block("all"):
            v = T.axis.spatial(8, i)
            B[v] = A[v] + 1.0
    for i in range(3):
        with T.block("scatter"):
            v = T.axis.spatial(3, i)
            D[at[v] + 4] = 5.0
    for i in range(9):
        with T.block("rest"):
            v = T.axis.spatial(9, i)
            C[v] = D[v] * 2.0
""",
    "moving-index": """
def main(A: T.Buffer((6, 4), "float32"), B: T.Buffer((6, 4), "float32")):
    at = T.alloc_buffer((1,), "int32")
    t = T.alloc_buffer((6, 4), "float32")
    for i, j in T.grid(6, 4):
        with T.block("t"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = A[vi, vj] + 1.0
    for i in range(6):
        for k in range(2):
            with T.block("at"):
                vk, vi = T.axis.remap("SS", [k, i])
                at[0] = T.Cast("int32", (vi + vk) % 6)
            for j in range(2):
                with T.block("out"):
                    vi, vk, vj = T.axis.remap("SSS", [i, k, j])
                    B[vi, vk * 2 + vj] = t[at[0], vk * 2 + vj]
""",
    "narrow-loops": """
def main(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6, 8), "float32"), S: T.Buffer((6,), "float32")):
    t = T.alloc_buffer((6, 8), "float32")
    for i, j in T.grid(T.int32(6), T.int32(8)):
        with T.block("t"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = A[vi, 7 - vj] + 1.0
    for i, j in T.grid(T.int32(6), T.int32(8)):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = t[vi, vj] * 2.0
    for i, k in T.grid(T.int32(6), T.int32(8)):
        with T.block("s"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = 0.0
            S[vi] = S[vi] + t[vi, vk] * B[vi, vk]
""",
}
