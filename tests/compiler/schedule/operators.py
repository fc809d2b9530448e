"""Small functions to schedule: name -> tensor function and the sizes of its symbolic axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from mlc_compiler.interp import run_prim_func
from mlc_compiler.interp.evaluate import evaluate
from mlc_compiler.ir.expr import PrimExpr, Var, logical_and
from mlc_compiler.ir.visitor import free_vars
from mlc_compiler.script import parse
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from tests.compiler.schedule.hand_written import HAND_WRITTEN


@dataclass(frozen=True)
class Case:
    """A tensor function. sizes: values for its symbolic sizes. rtol: tolerance for elementary functions."""

    func: PrimFunc
    sizes: Mapping[str, int] = field(default_factory=dict)
    rtol: float = 0.0

    def shapes(self) -> list[tuple[int, ...]]:
        env = {id(v): self.sizes[v.name] for v in free_vars([b.shape for b in self.func.buffers])}
        return [tuple(evaluate(s, env) for s in b.shape) for b in self.func.buffers]

    def arguments(self) -> list[np.ndarray]:
        """Small whole numbers, whose sums and products are exact in any order; outputs are filled with -77."""
        rng = np.random.default_rng(1)
        count = len(self.func.buffers) - self.func.attrs.get("num_outputs", 0)
        arrays = []
        for i, (shape, buffer) in enumerate(zip(self.shapes(), self.func.buffers)):
            whole = rng.integers(-4, 5, shape) if i < count else np.full(shape, -77)
            arrays.append(whole.astype(buffer.dtype))
        return arrays

    def run(self, func: PrimFunc) -> list[np.ndarray]:
        arrays = self.arguments()
        run_prim_func(func, *arrays)
        return arrays


def _chain(n: object, m: object) -> PrimFunc:
    a, b = te.placeholder((n, m), name="A"), te.placeholder((m,), name="B")
    first = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="first")
    second = te.compute((n, m), lambda i, j: first[i, j] + b[j], name="second")
    third = te.compute((n, m), lambda i, j: te.max(second[i, j], 0.0) - first[i, j], name="third")
    return te.create_prim_func([a, b, third])


def _transposed(n: object, m: object) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    scaled = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="scaled")
    turned = te.compute((m, n), lambda i, j: scaled[j, i] * 3.0, name="turned")
    return te.create_prim_func([a, turned])


def _window(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    doubled = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="doubled")

    def near(i: Var, j: Var) -> object:
        before = te.if_then_else(j > 0, doubled[i, j - 1], 0.0)
        return before + doubled[i, j] + te.if_then_else(j < m - 1, doubled[i, j + 1], 0.0)

    return te.create_prim_func([a, te.compute((n, m), near, name="near")])


def _matmul(n: object, m: int, depth: int) -> PrimFunc:
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    c = te.placeholder((m,), name="bias")
    k = te.reduce_axis(depth, "k")
    product = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    biased = te.compute((n, m), lambda i, j: product[i, j] + c[j], name="biased")
    relu = te.compute((n, m), lambda i, j: te.max(biased[i, j], 0.0), name="relu")
    return te.create_prim_func([a, b, c, relu])


def _rows(n: object, m: object) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    k, k2 = te.reduce_axis(m, "k"), te.reduce_axis(m, "k")
    greatest = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="greatest")
    apart = te.compute((n, m), lambda i, j: (greatest[i] - a[i, j]) * 2.0, name="apart")
    total = te.compute((n,), lambda i: te.sum(apart[i, k2] * apart[i, k2], axis=k2), name="total")
    out = te.compute((n, m), lambda i, j: apart[i, j] + total[i], name="out")
    return te.create_prim_func([a, out])


def _total(n: object, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    k, r = te.reduce_axis(n, "k"), te.reduce_axis(m, "r")
    return te.create_prim_func([a, te.compute((1,), lambda i: te.sum(a[k, r], axis=[k, r]), name="all")])


def _math(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    power = te.compute((n, m), lambda i, j: te.exp(a[i, j]), name="power")
    return te.create_prim_func([a, te.compute((n, m), lambda i, j: te.tanh(power[i, j]) + power[i, j], name="out")])


def _two_outputs(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    shared = te.compute((n, m), lambda i, j: a[i, j] * a[i, j], name="shared")
    k = te.reduce_axis(m, "k")
    sums = te.compute((n,), lambda i: te.sum(shared[i, k], axis=k), name="sums")
    less = te.compute((n, m), lambda i, j: shared[i, j] - 1.0, name="less")
    return te.create_prim_func([a, sums, less])


def _batched(batch: int, n: object, m: int) -> PrimFunc:
    a, b = te.placeholder((batch, n, m), name="A"), te.placeholder((batch, m), name="B")
    k = te.reduce_axis(m, "k")
    dots = te.compute((batch, n), lambda b_, i: te.sum(a[b_, i, k] * b[b_, k], axis=k), name="dots")
    scaled = te.compute((batch, n), lambda b_, i: dots[b_, i] * 2.0, name="scaled")
    return te.create_prim_func([a, b, scaled])


def _gather(n: int, m: int) -> PrimFunc:
    table, index = te.placeholder((9, m), name="table"), te.placeholder((n,), "int32", "index")
    doubled = te.compute((9, m), lambda i, j: table[i, j] * 2.0, name="doubled")
    row = te.compute((n,), lambda i: te.cast(index[i] + 4, "int64"), name="row")
    return te.create_prim_func([table, index, te.compute((n, m), lambda i, j: doubled[row[i], j], name="taken")])


def _convolution(height: int, width: int) -> PrimFunc:
    a, w = te.placeholder((2, height, width), "int32", "A"), te.placeholder((3, 2, 3, 2), "int32", "W")
    padded = te.compute(
        (2, height + 2, width),
        lambda c, y, x: te.if_then_else(logical_and(y > 0, y <= height), a[c, y - 1, x], 0),
        name="padded",
    )
    c, ky, kx = te.reduce_axis(2, "c"), te.reduce_axis(3, "ky"), te.reduce_axis(2, "kx")
    out = te.compute(
        (3, height, width // 2),
        lambda o, y, x: te.sum(padded[c, y + ky, x * 2 + kx] * w[o, c, ky, kx], axis=[c, ky, kx]),
        name="out",
    )
    return te.create_prim_func([a, w, out])


def _softmax_like(n: object, m: object) -> PrimFunc:
    a, scale = te.placeholder((n, m), name="A"), te.placeholder((1, m), name="scale")
    k, k2 = te.reduce_axis(m, "k"), te.reduce_axis(m, "k")
    scaled = te.compute((n, m), lambda i, j: a[i, j] * scale[0, j], name="scaled")
    least = te.compute((n, 1), lambda i, u: te.min(scaled[i, k], axis=k), name="least")
    total = te.compute((n, 1), lambda i, u: te.sum(scaled[i, k2] - least[i, 0], axis=k2), name="total")
    out = te.compute((n, m), lambda i, j: (scaled[i, j] - least[i, 0]) + total[i, 0], name="out")
    first = te.compute((m,), lambda j: out[0, j] * 2.0, name="first")
    return te.create_prim_func([a, scale, out, first])


def _reshaped(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), "int64", "A")
    doubled = te.compute((n, m), lambda i, j: a[i, j] * 2, name="doubled")
    flat = te.compute((n * m,), lambda i: doubled[i // m, i % m] + 1, name="flat")
    folded = te.compute((m, n), lambda i, j: flat[i * n + j] - a[j, i], name="folded")
    return te.create_prim_func([a, folded])


def _joined(n: int, m: int) -> PrimFunc:
    a, b = te.placeholder((n, m), name="A"), te.placeholder((n, m), name="B")
    left = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="left")
    right = te.compute((n, m), lambda i, j: b[i, m - 1 - j] * 2.0, name="right")
    joined = te.compute((n, 2 * m), lambda i, j: te.if_then_else(j < m, left[i, j], right[i, j - m]), name="joined")
    k = te.reduce_axis(2 * m, "k")
    return te.create_prim_func([a, b, te.compute((n,), lambda i: te.sum(joined[i, k], axis=k), name="sums")])


def _outer_products(n: object, m: int) -> PrimFunc:
    a, b = te.placeholder((n,), name="A"), te.placeholder((m,), name="B")
    outer = te.compute((n, m), lambda i, j: a[i] * b[j], name="outer")
    k, k2 = te.reduce_axis(n, "k"), te.reduce_axis(m, "k")
    columns = te.compute((m,), lambda j: te.sum(outer[k, j], axis=k), name="columns")
    both = te.compute((n,), lambda i: te.sum(outer[i, k2] * columns[k2], axis=k2), name="both")
    return te.create_prim_func([a, b, both])


def _bytes(rows: object) -> PrimFunc:
    w, x = te.placeholder((16, 4), "uint8", "W"), te.placeholder((rows, 4), "int8", "X")
    k = te.reduce_axis(4, "k")

    def product(i: Var, j: Var) -> PrimExpr:
        return te.cast(w[j, k], "int32") * te.cast(x[i, k], "int32")

    return te.create_prim_func([w, x, te.compute((rows, 16), lambda i, j: te.sum(product(i, j), axis=k), name="dot")])


def _stencils(n: int, m: int) -> PrimFunc:
    """Sums of three rows, thrice, the second of every other row."""
    a = te.placeholder((2 * n + 7, m), "int32", "A")
    y, y2, y3 = (te.reduce_axis(3, "y") for _ in range(3))
    fine = te.compute((2 * n + 5, m), lambda i, j: te.sum(a[i + y, j], axis=y), name="fine")
    coarse = te.compute((n + 2, m), lambda i, j: te.sum(fine[i * 2 + y2, j], axis=y2), name="coarse")
    return te.create_prim_func([a, te.compute((n, m), lambda i, j: te.sum(coarse[i + y3, j], axis=y3), name="out")])


N, M = Var("n"), Var("m")
CASES: dict[str, Callable[[], Case]] = {
    "chain": lambda: Case(_chain(7, 13)),
    "chain-unit": lambda: Case(_chain(1, 6)),
    "chain-symbolic": lambda: Case(_chain(N, M), {"n": 5, "m": 7}),
    "transposed": lambda: Case(_transposed(6, 5)),
    "transposed-symbolic": lambda: Case(_transposed(N, 8), {"n": 3}),
    "window": lambda: Case(_window(3, 11)),
    "matmul": lambda: Case(_matmul(7, 13, 17)),
    "matmul-even": lambda: Case(_matmul(4, 8, 6)),
    "matmul-rows": lambda: Case(_matmul(N, 8, 5), {"n": 5}),
    "rows": lambda: Case(_rows(5, 13)),
    "rows-symbolic": lambda: Case(_rows(N, 7), {"n": 4}),
    "rows-both": lambda: Case(_rows(N, M), {"n": 3, "m": 6}),
    "total": lambda: Case(_total(7, 6)),
    "total-symbolic": lambda: Case(_total(N, 6), {"n": 5}),
    "math": lambda: Case(_math(3, 7), rtol=2e-6),
    "two-outputs": lambda: Case(_two_outputs(6, 7)),
    "batched": lambda: Case(_batched(2, 5, 7)),
    "batched-symbolic": lambda: Case(_batched(3, N, 4), {"n": 5}),
    "gather": lambda: Case(_gather(5, 7)),
    "convolution": lambda: Case(_convolution(4, 6)),
    "stencils": lambda: Case(_stencils(8, 3)),
    "softmax-like": lambda: Case(_softmax_like(3, 7)),
    "softmax-like-rows": lambda: Case(_softmax_like(N, 5), {"n": 4}),
    "bytes": lambda: Case(_bytes(3)),
    "bytes-symbolic": lambda: Case(_bytes(N), {"n": 5}),
    "reshaped": lambda: Case(_reshaped(4, 6)),
    "joined": lambda: Case(_joined(3, 5)),
    "outer-products": lambda: Case(_outer_products(6, 4)),
    "outer-products-symbolic": lambda: Case(_outer_products(N, 3), {"n": 7}),
}


def _hand_written(text: str) -> Case:
    return Case(parse(f"@T.prim_func{text}"), {"n": 6})


CASES |= {name: partial(_hand_written, text) for name, text in HAND_WRITTEN.items()}
