"""Sums by one row of the table of dot products, to run with weights and digits at the bounds that the row states."""

from __future__ import annotations

from itertools import product

import numpy as np

from mlc_compiler.backends.cpu.instructions.dot import DotProduct, byte_of
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule

CASES, CALLS = 40, 3


def dots(row: DotProduct) -> PrimFunc:
    """out[case, lane] = sum over steps and bytes of words[case, step, lane].byte * fours[case, step, byte], three
    times the steps of the instruction."""
    steps = CALLS * row.steps
    words = te.placeholder((CASES, steps, row.lanes), "uint32", "words")
    fours = te.placeholder((CASES, steps, 4), "int8", "fours")
    step, k = te.reduce_axis(steps, "step"), te.reduce_axis(4, "k")
    out = te.compute(
        (CASES, row.lanes),
        lambda c, i: te.sum(
            byte_of(words[c, step, i], k, row.signed) * te.cast(fours[c, step, k], "int32"), axis=[step, k]
        ),
        name="out",
    )
    s = Schedule(te.create_prim_func([words, fours, out]))
    _, lane, step_loop, _ = s.get_loops("out")
    together = []
    if row.steps > 1:
        step_loop, *together = s.split(step_loop, [None, row.steps])
    s.reorder(step_loop, lane, *together)
    s.decompose_reduction("out", step_loop)
    s.tensorize(s.get_loops("out_update")[2], row.intrin.name)
    return s.func


def operands(row: DotProduct, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """words, fours and out: random bytes, and all pairs of the minimum, the maximum and their neighbours."""
    shape, most, least = (CASES, CALLS * row.steps), row.max_weight, row.min_digit
    weights = rng.integers(0, most + 1, (*shape, row.lanes, 4), dtype=np.uint8)
    fours = rng.integers(least, 128, (*shape, 4), dtype=np.int8)
    extremes = product(sorted({0, 1, most // 2, most // 2 + 1, most}), (least, least + 1, -1, 0, 127))
    for case, (w, x) in enumerate(extremes):
        weights[case], fours[case] = w, x
    values = (weights.view(np.int8) if row.signed else weights).astype(np.int64)
    out = np.einsum("csik,csk->ci", values, fours.astype(np.int64))
    return np.ascontiguousarray(weights).view(np.uint32)[..., 0], fours, out
