"""Matmuls of experts on GPUs: on the simulated driver, as loops, and their memory traffic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.backends.cuda.images import llvm_modules
from mlc_compiler.backends.cuda.launches import Kernel
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.ir.expr import Call
from mlc_compiler.ir.visitor import walk
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.sim import Counts, Memory, parse_ptx
from mlc_compiler.sim import run as simulate
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from tests.compiler.backends.cuda.products import lowered
from tests.compiler.backends.cuda.races import run
from tests.compiler.backends.cuda.scheduled import kernels
from tests.compiler.backends.expert_matmuls import Case, call, compiled, expert_ids

TOLERANCE = {"float32": 1e-5, "float16": 6e-3, "bfloat16": 4e-2}


def in_order(rows: int, experts: int) -> tuple[int, ...]:
    """Expert ids of rows, sorted, with uneven numbers of rows per expert."""
    return tuple(sorted(int(e) for e in np.random.default_rng(rows).integers(0, experts, rows)))


def check(case: Case, arch: str = "sm_80") -> None:
    mod, arguments, parameters, expected = case.module()
    library, packing = compiled(mod, f"cuda:{arch}")
    with SimulatedDriver(arch) as driver:
        driver.install(library)
        got = call(library, arguments, parameters, packing)
        library.context.close()
        assert driver.fault is None, driver.fault
        assert sum(driver.launches.values()) == 1 + (case.gated and case.dtype == "float32")
    tolerance = TOLERANCE[case.dtype]
    np.testing.assert_allclose(got.astype("f4"), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("rows", "scheme"),
    [(3, "q0f16"), (3, "q4f16_1"), (20, "q3f16_1"), (20, "q4f16_0"), (3, "q8f16_1"), (20, "e4m3_e4m3_f16")],
)
def test_schemes(rows: int, scheme: str) -> None:
    """Runs of up to 8 rows in a block each; runs of one tile in a block."""
    check(Case(in_order(rows, 2), 2, 40, 80, scheme, bias=True, symbolic=rows > 3))


@pytest.mark.parametrize(
    ("rows", "experts", "scheme", "arch"),
    [
        (150, 2, "q0f16", "sm_80"),
        (270, 2, "q4f16_1", "sm_80"),
        (270, 2, "q0f16", "sm_90a"),
        (140, 1, "q4f16_1", "sm_90a"),
    ],
)
def test_many_rows(rows: int, experts: int, scheme: str, arch: str) -> None:
    """Tiles of 64 and of 128 rows, with several runs in a tile."""
    check(Case(in_order(rows, experts), experts, 40, 72, scheme, gated=rows > 200), arch)


@pytest.mark.parametrize("case", [Case(in_order(70, 3), 3, 33, 45, "q0f32", "float32", bias=True, gated=True)])
def test_float32(case: Case) -> None:
    check(case)
    check(replace(case, ids=in_order(10, 3), depth=64, scheme="q4f32_1", gated=False))


def test_bfloat16_and_experts_out_of_order() -> None:
    check(Case((1, 0, 1, 1, 2, 0, 0, 0, 2, 2, 1), 4, 40, 64, "q0bf16", "bfloat16"))


@settings(max_examples=4)
@given(
    expert_ids(most=60),
    st.integers(1, 70).map(lambda half: 2 * half),
    st.integers(2, 140),
    st.sampled_from(["q0f16", "q4f16_1", "q4f16_0"]),
    st.booleans(),
    st.booleans(),
)
def test_any_size(
    ids: tuple[tuple[int, ...], int], columns: int, depth: int, scheme: str, gated: bool, bias: bool
) -> None:
    check(Case(*ids, columns, depth, scheme, gated=gated, bias=bias))


def fused(case: Case) -> PrimFunc:
    """The only tensor function of a case, fused but not scheduled, without the attributes of mark-activations."""
    passes = pipeline(Target("cuda:sm_80"))
    names = [p.name for p in passes]
    mod = run_passes(case.module()[0], passes[: names.index("mark-activations")])
    (func,) = mod.of_type(PrimFunc).values()
    return func


@pytest.mark.parametrize("rows", [5, 40])
def test_as_loops(rows: int) -> None:
    case = Case(in_order(rows, 2), 2, 40, 64, symbolic=False)
    _, arguments, parameters, expected = case.module()
    out = np.zeros(expected.shape, "f2")
    got = run(kernels(fused(case)), arguments[0], *parameters, *arguments[1:], out)[-1]
    np.testing.assert_allclose(got.astype("f4"), expected, rtol=6e-3, atol=6e-3)


def simulated(case: Case) -> Counts:
    """The counts of a case's kernel in the simulator."""
    target, launches = Target("cuda:sm_80"), dict[str, Kernel]()
    mod = lowered(fused(case), target)
    (text,) = assemble_modules(llvm_modules(mod, target, launches), target)
    ((name, kernel),) = launches.items()
    (launch,) = (
        n for n in walk(next(iter(mod.of_type(PrimFunc).values()))) if isinstance(n, Call) and n.op == "cuda.launch"
    )
    grid = tuple(size.value for size in launch.args[1:4])  # type: ignore[attr-defined]
    _, arguments, parameters, expected = case.module()
    memory, operands = Memory(), [*parameters, *arguments, np.full(expected.shape, np.nan, "f2")]
    addresses = [memory.allocate(np.frombuffer(a.tobytes() + bytes(-a.nbytes % 16), np.uint8)) for a in operands]
    counts = simulate(parse_ptx(text).kernels[name], grid, kernel.launch.block, addresses, memory)
    got = memory.view(addresses[-1], np.dtype("f2"), expected.shape)
    np.testing.assert_allclose(got.astype("f4"), expected, rtol=6e-3, atol=6e-3)
    return counts


@pytest.mark.parametrize("gated", [False, True])
def test_a_token_reads_the_weights_of_its_experts_only(gated: bool) -> None:
    """Two of 16 experts: their codes and scales, the activations and the numbers of the experts."""
    columns, depth = 64, 1024
    counts = simulated(
        Case((3, 11), 16, columns // (1 + gated), depth, "q4f16_1", gated=gated, symbolic=False, tokens=1)
    )
    weights = 2 * columns * depth * (32 * 4 + 16) // (32 * 8)
    assert weights <= counts.distinct_bytes_read <= 1.03 * (weights + 2 * depth)
    assert counts.bank_conflicts == 0
