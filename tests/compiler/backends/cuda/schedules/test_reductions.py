"""Reductions over leading axes, all axes, and few long rows: in the simulator, against the interpreter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.api import parse
from mlc_compiler.backends.cuda.images import compile_kernels
from mlc_compiler.interp import run_function
from mlc_compiler.ir.module import IRModule
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.sim.counts import Counts
from mlc_compiler.sim.host_functions import Device
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc

TARGET = Target("cuda:sm_80")
SECTOR = 32


def module(call: str, sizes: tuple[int | str, ...], dtype: str = "float32") -> IRModule:
    """A function of ``x``; sizes given as names are symbolic."""
    shape = ", ".join(f'"{s}"' if isinstance(s, str) else str(s) for s in sizes)
    return parse(f"""
@R.function
def main(x: R.Tensor(({shape},), "{dtype}")):
    with R.dataflow():
        y = {call}
        R.output(y)
    return y
""")


@dataclass
class Run:
    """The result of a module in the simulator, and the counts of its launches in order."""

    result: np.ndarray
    rules: set[str]
    counts: list[Counts] = field(default_factory=list)

    @property
    def launches(self) -> int:
        return len(self.counts)


def simulated(mod: IRModule, x: np.ndarray, result: np.ndarray) -> Run:
    """Run a module; ``result`` gives the shape and dtype of its result. Raises SimulationError for faults and races."""
    lowered = run_passes(mod, pipeline(TARGET))
    device = Device.of(compile_kernels(lowered, TARGET).images)
    rules = {str(f.attrs["schedule"]) for f in lowered.of_type(PrimFunc).values() if "schedule" in f.attrs}
    run = Run(np.zeros_like(result), rules)

    def kernels(func: PrimFunc, *args: Any) -> None:
        run.counts += [launched.counts for launched in device.run(func, *args)]

    run_function(lowered, "main", x, run.result, kernels=kernels)
    return run


def check(
    call: str, shape: tuple[int, ...], dtype: str = "float32", symbolic: int | None = None, rule: str = "Reduction"
) -> Run:
    """Assert that a reduction has the interpreter's result. symbolic: the axis with a symbolic size. rule: the schedule
    rule that must match."""
    mod = module(call, tuple("n" if i == symbolic else size for i, size in enumerate(shape)), dtype)
    x = np.random.default_rng(0).normal(0, 1, shape).astype(dtype)
    expected = run_function(mod, "main", x)
    run = simulated(mod, x, expected)
    assert run.rules == {rule}
    tolerance = 2e-3 if dtype == "float16" else 1e-5
    scale = max(float(np.abs(expected).max(initial=0.0)), 1.0)
    np.testing.assert_allclose(run.result, expected, rtol=0, atol=tolerance * scale)
    return run


CALLS = (
    "R.sum(x, axis=[{axis}])",
    "R.max(x, axis=[{axis}], keepdims=True)",
    "R.mean(x, axis=[{axis}])",
    "R.variance(x, axis=[{axis}])",
    "R.nn.softmax(x, axis={axis})",
    "R.argmax(x, axis={axis})",
)


@settings(max_examples=10)
@given(
    call=st.sampled_from(CALLS),
    shape=st.tuples(st.integers(2, 3), st.integers(2, 90), st.sampled_from([2, 33, 64, 65, 130])),
    axis=st.integers(0, 1),
    dtype=st.sampled_from(["float32", "float16"]),
)
def test_reductions_over_leading_axes(call: str, shape: tuple[int, ...], axis: int, dtype: str) -> None:
    check(call.format(axis=axis), shape, dtype)


@settings(max_examples=6)
@given(
    name=st.sampled_from(["sum(x)", "max(x)", "variance(x)"]),
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple),
)
def test_reductions_over_all_axes(name: str, shape: tuple[int, ...]) -> None:
    check(f"R.{name}", shape)


@pytest.mark.parametrize(
    ("call", "shape", "symbolic"),
    [
        ("R.sum(x, axis=[0])", (50, 33), 0),
        ("R.sum(x, axis=[0])", (1, 33), 0),
        ("R.sum(x, axis=[0])", (50, 33), 1),
        ("R.sum(x)", (50, 33), 0),
        ("R.sum(x, axis=[1])", (5, 700), 1),
        ("R.max(x, axis=[0, 1])", (7, 9, 33), 0),
    ],
)
def test_symbolic_sizes(call: str, shape: tuple[int, ...], symbolic: int) -> None:
    check(call, shape, symbolic=symbolic)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("R.sum(x, axis=[0])", (600, 64)),
        ("R.mean(x, axis=[1])", (2, 300, 64)),
        ("R.sum(x)", (150, 128)),
        ("R.sum(x, axis=[1])", (2, 70000)),
    ],
)
def test_each_element_is_read_once_in_whole_sectors(call: str, shape: tuple[int, ...]) -> None:
    """The first launch reads what is reduced in the fewest sectors; the others read little."""
    run = check(call, shape)
    first, *others = run.counts
    nbytes = 4 * int(np.prod(shape))
    assert first.global_bytes_read == nbytes
    assert first.global_load_sectors <= 1.1 * nbytes / SECTOR
    assert run.launches <= 3
    assert sum(c.global_bytes_read for c in others) < nbytes / 8


@pytest.mark.parametrize(("length", "dtype"), [(2560, "float16"), (2560, "float32"), (4800, "float32")])
def test_rows_that_threads_do_not_divide_are_read_in_whole_sectors(length: int, dtype: str) -> None:
    (counts,) = check("R.sum(x, axis=[1])", (3, length), dtype, rule="RowReduction").counts
    assert counts.global_load_sectors <= 1.02 * counts.global_bytes_read / SECTOR


def test_results_repeat() -> None:
    """The order of a sum does not depend on other columns or on the launch."""
    whole = check("R.sum(x, axis=[0])", (600, 64)).result
    again = check("R.sum(x, axis=[0])", (600, 64)).result
    assert np.array_equal(whole, again)
