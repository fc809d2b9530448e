"""Matmuls on tensor cores in the PTX simulator, against numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.backends.cuda.images import llvm_modules
from mlc_compiler.backends.cuda.launches import Kernel, LaunchCall, TensorMapArgument
from mlc_compiler.backends.cuda.machine import STATIC_SHARED_BYTES, WARP, Gpu
from mlc_compiler.backends.cuda.matmul import fma
from mlc_compiler.backends.cuda.matmul.few_rows import MAX_ROWS, FewRows
from mlc_compiler.backends.cuda.matmul.fused_matmul import match_fused_matmul
from mlc_compiler.backends.cuda.matmul.tiles import CHUNK, FEW_ROWS, LARGE, MEDIUM, SMALL, WARPGROUPS
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.ir.expr import Call, IntImm, PrimExpr
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import walk
from mlc_compiler.sim import Memory, TensorMap, encode_tensor_map, parse_ptx, run
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import Evaluate, PrimFunc
from tests.compiler.backends.cuda.products import Case, lowered

TARGET, HOPPER = Target("cuda:sm_80"), Target("cuda:sm_90a")


def whole_lines(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, padded to a multiple of 16: LLVM may load the aligned 16 bytes around an element."""
    data = np.frombuffer(array.tobytes(), np.uint8)
    return np.pad(data, (0, -data.size % 16))


@dataclass(frozen=True)
class Shape:
    """The grid and the block of a launch."""

    grid: tuple[int, ...]
    block: tuple[int, ...]


def shapes_of(case: Case, target: Target) -> list[Shape]:
    """The launch shape of each kernel that a case is compiled to; cases have few columns."""

    product = match_fused_matmul(case.function(), Gpu.of(target))
    assert product is not None
    assert product.gated == case.gated

    def tiled(rows: int, columns: int, threads: int) -> Shape:
        return Shape((-(-case.rows // rows), -(-product.columns // columns)), (threads,))

    if case.dtype == "float32":
        sides = [fma.ACROSS * side for side in ((fma.LARGE, fma.SMALL) if case.symbolic else (fma.SMALL,))]
        return [tiled(side, side, fma.ACROSS**2) for side in sides]
    few = FewRows(product, Gpu.of(target))
    first = Shape((few.blocks,), (WARP, few.d.warps))
    large = WARPGROUPS if target == HOPPER else LARGE
    small, *others = (tiled(t.rows, t.columns, t.threads) for t in (SMALL, large, MEDIUM))
    if case.symbolic:
        return [first, small, *(others[1:] if case.depth % CHUNK else others)]
    return [first if case.rows <= MAX_ROWS else small if case.rows <= FEW_ROWS else others[1]]


def chosen(case: Case, kernels: int) -> int:
    """The index of the kernel that the host function chooses."""
    if case.dtype == "float32" or kernels == 1 or case.rows > FEW_ROWS:
        return kernels - 1
    return 0 if case.rows <= MAX_ROWS else 1


def arguments(mod: IRModule, kernel: str, addresses: list[int], rows: int) -> list[int | bytes]:
    """The arguments that the host function passes to a kernel: buffers at ``addresses``, their tensor maps, and numbers
    of rows."""
    host = mod.of_type(PrimFunc)["main"]
    places = dict(zip(map(id, host.buffers), addresses, strict=True))
    calls = (LaunchCall.match(n.value) for n in walk(host.body) if isinstance(n, Evaluate))
    (launch,) = (call for call in calls if call is not None and call.kernel == kernel)
    return [_argument(a, places, rows) for a in launch.args]


def _argument(arg: PrimExpr, places: dict[int, int], rows: int) -> int | bytes:
    of_map = TensorMapArgument.match(arg)
    if of_map is not None:
        height, width = (size.value if isinstance(size, IntImm) else rows for size in (of_map.height, of_map.width))
        base, box = places[id(of_map.first.buffer)], (CHUNK * 8, of_map.rows)
        return encode_tensor_map(TensorMap(base, 2, (width, height), (2 * width,), box, 128))
    return places[id(arg.args[0].buffer)] if isinstance(arg, Call) else rows


def check(case: Case, number: int | None = None, target: Target = TARGET) -> None:
    """Run one kernel and compare its result. number: its index; by default, the one that the host function chooses."""
    kernels: dict[str, Kernel] = {}
    mod = lowered(case.function(), target)
    texts = assemble_modules(llvm_modules(mod, target, kernels), target)
    operands, expected = case.arrays()
    memory = Memory()
    result = np.full(expected.shape, np.nan, expected.dtype)
    addresses = [memory.allocate(whole_lines(array)) for array in (*operands, result)]
    number = chosen(case, len(kernels)) if number is None else number
    shape = shapes_of(case, target)[number]
    name = list(kernels)[number]
    shared = kernels[name].launch.shared_bytes
    args = arguments(mod, name, addresses, case.rows)
    dynamic = shared if shared > STATIC_SHARED_BYTES else 0
    kernel = next(found[name] for found in (parse_ptx(text).kernels for text in texts) if name in found)
    run(kernel, shape.grid, shape.block, args, memory, dynamic)
    got = memory.view(addresses[-1], result.dtype, result.shape)
    tolerance = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[case.dtype]
    np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=tolerance, atol=2 * tolerance)


@pytest.mark.parametrize("weight", ["NK", "KN", "q4 NK", "q4 KN"])
@pytest.mark.parametrize(("rows", "dtype"), [(1, "float16"), (20, "float16"), (129, "bfloat16")])
def test_product(rows: int, dtype: str, weight: str) -> None:
    check(Case(rows, 136, 160, weight, dtype))


@pytest.mark.parametrize("weight", ["NK", "q4 NK"])
def test_large_tiles(weight: str) -> None:
    check(Case(129, 136, 160, weight), 2)


@pytest.mark.parametrize(("weight", "dtype"), [("NK", "float16"), ("KN", "bfloat16"), ("q4 NK", "bfloat16")])
def test_warpgroups(weight: str, dtype: str) -> None:
    check(Case(129, 200, 160, weight, dtype), 2, HOPPER)


@pytest.mark.parametrize(
    ("rows", "number", "target", "weight"),
    [(5, 0, TARGET, "KN"), (20, 1, TARGET, "q4 KN"), (70, 2, HOPPER, "q4 NK"), (70, 3, TARGET, "NK")],
)
def test_gated(rows: int, number: int, target: Target, weight: str) -> None:
    """Both sums of a result in each kernel; columns beyond the last tile."""
    check(Case(rows, 72, 160, weight, gated=True), number, target)


@pytest.mark.parametrize("weight", ["NK", "KN", "q4 NK", "q4 KN"])
def test_float32(weight: str) -> None:
    check(Case(70, 67, 45, weight, "float32", symbolic=False))
    check(Case(130, 132, 48, weight, "float32"), 0)


@settings(max_examples=6)
@given(
    rows=st.integers(1, 150),
    columns=st.integers(2, 140),
    depth=st.integers(2, 140),
    weight=st.sampled_from(["NK", "KN", "q4 NK", "q4 KN"]),
    symbolic=st.booleans(),
    gated=st.booleans(),
)
def test_any_size(rows: int, columns: int, depth: int, weight: str, symbolic: bool, gated: bool) -> None:
    check(Case(rows, columns, depth, weight, "float16", symbolic, gated))
