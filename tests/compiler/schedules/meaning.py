"""Helpers that assert that scheduled and lowered functions keep the results of their definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mlc_compiler.backends.cpu.schedules import CPU_RULES
from mlc_compiler.interp import run_prim_func
from mlc_compiler.interp.evaluate import evaluate
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.expr import Var
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import Rewriter, free_vars, substitute
from mlc_compiler.passes.apply_schedules import ApplySchedules
from mlc_compiler.passes.lift_allocs import LiftAllocs
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.target import Target
from mlc_compiler.tir.index_map import IndexMap
from mlc_compiler.tir.nodes import PARALLEL, Buffer, For, PrimFunc
from mlc_compiler.verifier import verify
from tests.compiler.script.round_trip import check_round_trip

AVX2, AVX512 = Target("cpu:x86-64-v3"), Target("cpu:znver4")


def scheduled(func: PrimFunc, to: Any = AVX2) -> PrimFunc:
    """The function as scheduled by the CPU rules."""
    return ApplySchedules(CPU_RULES, to).function(func, "main")


def lowered(func: PrimFunc) -> PrimFunc:
    """The function lowered to loops with lifted scratch memory."""
    mod = IRModule({"f": func})
    for step in (LowerBlocks(), LiftAllocs()):
        mod = step.run(mod)
    verify(mod)
    return mod["f"]


def check_meaning(
    func: PrimFunc, sizes: Mapping[str, int] | None = None, to: Any = AVX2, rule: str | None = None
) -> PrimFunc:
    """Assert that the rule's schedule keeps the results of ``func``; returns the scheduled function.

    Symbolic sizes are taken from ``sizes``. Parallel loops run forwards and backwards.
    """
    result = scheduled(func, to)
    verify(IRModule({"f": result}))
    check_round_trip(result)
    assert rule is None or result.attrs.get("schedule") == rule
    inputs = random_arguments(func, sizes or {})
    expected = run(func, inputs)
    loops = lowered(result)
    for variant in (result, loops, Backwards()(loops)):
        for got, want in zip(run(variant, inputs), expected, strict=True):
            _check_close(got, want)
    return result


def _check_close(got: np.ndarray, want: np.ndarray) -> None:
    """Assert equality up to the order of sums: within float32 rounding, relative to the largest result."""
    largest = float(np.nanmax(np.abs(want), initial=0))
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * largest)


class Backwards(Rewriter):
    """Reverses parallel loops."""

    def rewrite_For(self, node: For) -> For:
        body = self(node.body)
        if node.kind != PARALLEL:
            return replace(node, body=body)
        return replace(node, body=substitute(body, {node.var: node.extent - 1 - node.var}))


def random_arguments(func: PrimFunc, sizes: Mapping[str, int], seed: int = 0) -> list[Any]:
    """An array for each buffer, small random numbers; sizes and scalars by name."""
    rng = np.random.default_rng(seed)
    env = {id(v): sizes[v.name] for v in free_vars([p.shape if isinstance(p, Buffer) else p for p in func.params])}
    return [env[id(p)] if isinstance(p, Var) else _random(rng, p, env) for p in func.params]


def _random(rng: np.random.Generator, buffer: Buffer, env: dict[int, int]) -> np.ndarray:
    shape = tuple(evaluate(s, env) for s in buffer.shape)
    if dt.is_float(buffer.dtype):
        return rng.standard_normal(shape).astype(dt.to_numpy(buffer.dtype))
    high = 1 << 32 if buffer.dtype == "uint32" else 3
    return rng.integers(0, high, shape).astype(dt.to_numpy(buffer.dtype))


def _stored(array: np.ndarray, layout: IndexMap) -> np.ndarray:
    """The array in a layout; padding is NaN, or 1 in integers."""
    return layout.pack(array, np.nan if array.dtype.kind == "f" else 1)


def run(func: PrimFunc, arguments: list[Any]) -> list[np.ndarray]:
    """The outputs of a function, whose weights may be packed and which may take scratch memory."""
    count, scratch = int(func.attrs["num_outputs"]), int(func.attrs.get("num_scratch", 0))
    layouts = func.attrs.get("layouts", {})
    args = [_stored(a, layouts[str(i)]) if str(i) in layouts else a for i, a in enumerate(arguments)]
    arrays = [np.copy(a) for a in args if isinstance(a, np.ndarray)]
    outputs = arrays[len(arrays) - count :]
    for out in outputs:
        out[...] = np.full(out.shape, 77).astype(out.dtype)
    scalars = [a for a in args if not isinstance(a, np.ndarray)]
    env = sizes_of(func, [*arrays, *[None] * scratch, *scalars])
    extra = [_scratch(b, env) for b in func.buffers[len(arrays) :]]
    numbers = iter(scalars)
    buffers = iter([*arrays, *extra])
    run_prim_func(func, *(next(buffers) if isinstance(p, Buffer) else next(numbers) for p in func.params))
    return outputs


def sizes_of(func: PrimFunc, arrays: list[Any]) -> dict[int, int]:
    """The values of symbolic sizes in the arrays' shapes, keyed by variable (identity)."""
    env: dict[int, int] = {}
    for param, array in zip([*func.buffers, *(p for p in func.params if isinstance(p, Var))], arrays, strict=False):
        if isinstance(param, Var):
            env[id(param)] = array
        elif array is not None:
            env |= {id(s): n for s, n in zip(param.shape, array.shape, strict=True) if isinstance(s, Var)}
    return env


def _scratch(buffer: Buffer, env: dict[int, int]) -> np.ndarray:
    shape = tuple(evaluate(s, env) for s in buffer.shape)
    return np.full(shape, 77).astype(dt.to_numpy(buffer.dtype))
