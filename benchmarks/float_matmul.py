"""The float32 matmuls that ``benchmarks/matmul.py`` measures, as tensor expressions and schedule steps."""

from __future__ import annotations

from typing import Any

from tuning_workloads import product_relu

from mlc_compiler import Schedule, te
from mlc_compiler.ir.expr import PrimExpr, Var
from mlc_compiler.tir.nodes import PrimFunc

# -- four steps ---------------------------------------------------------------------------------------------------


def four_steps(s: Any, product: Any, relu: Any) -> None:
    """Split columns by four inside the reduction, with the initialization before and ReLU after it.

    s: a schedule of this project or of TVM.
    """
    _, j, k = s.get_loops(product)
    j_0, j_1 = s.split(j, factors=[None, 4])
    s.reorder(j_0, k, j_1)
    s.reverse_compute_at(relu, j_0)
    s.decompose_reduction(product, k)


def scheduled_product_relu(size: int) -> PrimFunc:
    """``product_relu`` after ``four_steps``."""
    s = Schedule(te.create_prim_func(product_relu(te, size)))
    four_steps(s, "Y", "C")
    return s.func


# -- packed operands, tiles in registers --------------------------------------------------------------------------


def packed_product(size: int, rows: int, columns: int) -> PrimFunc:
    """``C = A B``, float32 [size, size], with A in tiles of ``rows`` rows and B in tiles of ``columns`` columns."""
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    k = te.reduce_axis(size, "k")
    tiles_a = te.compute((size // rows, size, rows), lambda t, k, i: a[t * rows + i, k], name="packed_A")
    tiles_b = te.compute((size // columns, size, columns), lambda t, k, j: b[k, t * columns + j], name="packed_B")

    def element(i: Var, j: Var) -> PrimExpr:
        return te.sum(tiles_a[i // rows, k, i % rows] * tiles_b[j // columns, k, j % columns], axis=k)

    return te.create_prim_func([a, b, te.compute((size, size), element, name="C")])


def tiled_product(size: int, rows: int, columns: int, depth: int = 4) -> PrimFunc:
    """``packed_product`` with a tile of accumulators in registers; ``depth`` steps of the reduction are unrolled."""
    s = Schedule(packed_product(size, rows, columns))
    copy = s.cache_write("C", "local")
    i, j, k = s.get_loops("C")
    i_0, i_1 = s.split(i, [None, rows])
    j_0, j_1 = s.split(j, [None, columns])
    k_0, k_1 = s.split(k, [None, depth])
    s.reorder(j_0, i_0, k_0, k_1, i_1, j_1)
    s.reverse_compute_at(copy, i_0)
    init = s.decompose_reduction("C", k_0)
    s.unroll(k_1)
    for block in (init, "C", copy):
        row, lane = s.get_loops(block)[-2:]
        s.unroll(row)
        s.vectorize(lane)
    return s.func
