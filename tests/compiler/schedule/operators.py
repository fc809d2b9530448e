"""Small functions to schedule: name -> tensor function and the sizes of its symbolic axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir.expr import IntImm, Var
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc


@dataclass(frozen=True)
class Case:
    """A tensor function. sizes: values for its symbolic sizes. rtol: what elementary functions may differ by."""

    func: PrimFunc
    sizes: Mapping[str, int] = field(default_factory=dict)
    rtol: float = 0.0

    def shapes(self) -> list[tuple[int, ...]]:
        def value(size: object) -> int:
            return size.value if isinstance(size, IntImm) else self.sizes[size.name]  # type: ignore[attr-defined]

        return [tuple(value(s) for s in b.shape) for b in self.func.buffers]

    def arguments(self) -> list[np.ndarray]:
        """Small whole numbers, of which sums and products are exact in any order; outputs hold no result."""
        rng = np.random.default_rng(1)
        count = len(self.func.buffers) - self.func.attrs["num_outputs"]
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
}
