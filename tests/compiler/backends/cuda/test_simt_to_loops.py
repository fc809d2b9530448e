"""Kernels as loops: numpy's results in both orders of threads; races and divergent barriers are detected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.backends.cuda.passes.place_syncs import PlaceSyncs
from mlc_compiler.backends.cuda.passes.simt_to_loops import SimtToLoops
from mlc_compiler.ir.expr import PrimExpr, Var
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import walk
from mlc_compiler.script import parse, script
from mlc_compiler.tir import intrinsics, te
from mlc_compiler.tir.intrinsics import Operand, TensorIntrin
from mlc_compiler.tir.nodes import Allocate
from mlc_errors import MLCError
from tests.compiler.backends.cuda.kernels import kernel, main, module
from tests.compiler.backends.cuda.races import Race, run


def _arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _y(mod: IRModule, x: np.ndarray) -> np.ndarray:
    return run(mod, x, np.zeros(256, np.float32))[1]


TREE = """
@T.prim_func
def main(x: T.Buffer((B, 2 * N), "float32"), y: T.Buffer((B,), "float32")):
    for b in T.thread_binding(B, thread="blockIdx.x"):
        s = T.decl_buffer((N,), "float32", scope="shared")
        for t in T.thread_binding(N, thread="threadIdx.x"):
            own = T.decl_buffer((1,), "float32", scope="local")
            own[0] = x[b, t]
            if x[b, 0] < 100.0:
                s[t] = own[0] + x[b, N + t]
            for step in range(L):
                if t < T.shift_right(N // 2, step):
                    s[t] = s[t] + s[t + T.shift_right(N // 2, step)]
            if t == 0:
                y[b] = s[0] + own[0] - x[b, 0]
"""


@settings(max_examples=8)
@given(log=st.integers(1, 6), blocks=st.integers(1, 3))
def test_a_tree_reduction(log: int, blocks: int) -> None:
    mod = PlaceSyncs().run(module(TREE, B=blocks, N=1 << log, L=log))
    x, y = _arrays((blocks, 2 << log), (blocks,))
    np.testing.assert_allclose(run(mod, x, y)[1], x.sum(1), rtol=1e-4, atol=1e-5)


def test_a_missing_barrier_is_a_race() -> None:
    x, y = _arrays((1, 64), (1,))
    with pytest.raises(Race, match="argument 1 of 'main' differs"):
        run(module(TREE, B=1, N=32, L=5), x, y)


@settings(max_examples=12)
@given(
    extents=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    shift=st.integers(0, 7),
    rounds=st.integers(1, 4),
)
def test_values_of_threads_across_barriers(extents: list[int], shift: int, rounds: int) -> None:
    """Each thread adds its neighbour's value in every round; a register and a variable live across the barriers."""
    total = int(np.prod(extents))
    loops, number = "", "0"
    for depth, (axis, extent) in enumerate(zip("zyx"[-len(extents) :], extents, strict=True)):
        loops += f"{' ' * 8}{'    ' * depth}for t{axis} in T.thread_binding({extent}, thread='threadIdx.{axis}'):\n"
        number = f"(({number}) * {extent} + t{axis})"
    body = f"""
acc = T.decl_buffer((1,), "float32", scope="local")
i: T.int64 = {number}
first: T.float32 = x[i]
acc[0] = first
for k in range({rounds}):
    s[i] = acc[0]
    acc[0] = acc[0] + s[(i + {shift}) % {total}]
y[i] = acc[0] - first
"""
    pad = " " * (8 + 4 * len(extents))
    text = f"""
@T.prim_func
def main(x: T.Buffer(({total},), "float32"), y: T.Buffer(({total},), "float32")):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        s = T.decl_buffer(({total},), "float32", scope="shared")
{loops}{"".join(pad + line + chr(10) for line in body.strip().splitlines())}"""
    (x,) = _arrays((total,))
    expected = x
    for _ in range(rounds):
        expected = expected + np.roll(expected, -shift)
    found = run(PlaceSyncs().run(module(text)), x, np.zeros_like(x))[1]
    np.testing.assert_allclose(found, expected - x, rtol=1e-4, atol=1e-4)


def test_sibling_loops_of_different_extents() -> None:
    text = """
    @T.prim_func
    def main(x: T.Buffer((48,), "float32"), y: T.Buffer((48,), "float32")):
        for b in T.thread_binding(1, thread="blockIdx.x"):
            s = T.decl_buffer((48,), "float32", scope="shared")
            for t in T.thread_binding(48, thread="threadIdx.x"):
                s[t] = x[t]
            for u in T.thread_binding(16, thread="threadIdx.x"):
                s[u] = s[u + 16] + s[u + 32]
            for v in T.thread_binding(48, thread="threadIdx.x"):
                y[v] = s[47 - v]
    """
    (x,) = _arrays((48,))
    expected = np.concatenate([x[16:32] + x[32:], x[16:]])[::-1]
    np.testing.assert_array_equal(run(PlaceSyncs().run(module(text)), x, np.zeros_like(x))[1], expected)


def test_symbolic_grid_and_while_loop() -> None:
    text = """
    @T.prim_func
    def main(var_x: T.handle, var_y: T.handle):
        n = T.int64()
        x = T.match_buffer(var_x, (n, 32), "float32")
        y = T.match_buffer(var_y, (n, 32), "float32")
        for b in T.thread_binding(n, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                s = T.decl_buffer((32,), "float32", scope="shared")
                k = T.decl_buffer((1,), "int64", scope="local")
                k[0] = 0
                s[t] = x[b, t]
                while k[0] <= b:
                    v = s[31 - t]
                    s[t] = v
                    k[0] = k[0] + 1
                y[b, t] = s[t]
    """
    (x,) = _arrays((5, 32))
    expected = np.where(np.arange(5)[:, None] % 2 == 0, x[:, ::-1], x)
    np.testing.assert_array_equal(run(PlaceSyncs().run(module(text)), x, np.zeros_like(x))[1], expected)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("if t < 32:\n    T.tvm_storage_sync('shared')", "a condition"),
        ("for i in range(t):\n    T.tvm_storage_sync('shared')", "the loop 'i'"),
        ("while s[t] > 0.0:\n    T.tvm_storage_sync('shared')", "a while loop"),
        ("for u in T.thread_binding(32, thread='threadIdx.x'):\n    T.tvm_storage_sync('shared')", "a condition"),
    ],
)
def test_divergent_barriers_are_refused(body: str, what: str) -> None:
    with pytest.raises(MLCError, match=f"divergent barrier: .* lies inside {what}, which differs between threads"):
        SimtToLoops().run(kernel(body))


def test_a_virtual_thread_is_refused() -> None:
    with pytest.raises(MLCError, match="run the pass virtual-threads first"):
        SimtToLoops().run(kernel("for v in T.thread_binding(2, thread='vthread.x'):\n    y[t] = x[t]"))


def test_shared_buffers_are_allocated_once_per_block_and_the_result_reads_back() -> None:
    mod = SimtToLoops().run(PlaceSyncs().run(kernel("a = x[t]\ns[t] = a\ny[t] = s[63 - t] + a")))
    shapes = {n.buffer.name: [int(e) for e in n.buffer.shape] for n in walk(main(mod).body) if isinstance(n, Allocate)}
    assert shapes == {"s": [256], "r": [256], "a": [64]}
    assert script(parse(script(mod))) == script(mod)


# -- instructions -------------------------------------------------------------------------------------------------


def _of_lanes(name: str, elements: int = 1) -> Operand:
    return Operand(name, (32, elements), "float32", per_lane=True)


def _shuffled(value: te.Tensor, m: Var) -> te.Tensor:
    return te.compute((32, 1), lambda lane, i: value[lane ^ m, i], name="out")


def _product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(4, "k")

    def element(i: Var, j: Var) -> PrimExpr:
        return te.sum(a[i, k] * b[k, j], axis=k)

    return te.compute((8, 8), element, name="acc")


ROWS = (
    TensorIntrin("test.shuffle", (_of_lanes("out"), _of_lanes("value")), _shuffled, {}, scalars=("m",), lanes=32),
    TensorIntrin(
        "test.load",
        (Operand("tile", (8, 4), "float32"), Operand("memory", (8, 4), "float32")),
        lambda memory: te.compute((8, 4), lambda i, j: memory[i, j], name="tile"),
        {},
        lanes=32,
    ),
    TensorIntrin(
        "test.product",
        (Operand("acc", (8, 8), "float32"), Operand("a", (8, 4), "float32"), Operand("b", (4, 8), "float32")),
        _product,
        {},
        accumulates=True,
        lanes=32,
    ),
    TensorIntrin(
        "test.copy4",
        (Operand("dst", (4,), "float32"), Operand("src", (4,), "float32")),
        lambda src: te.compute((4,), lambda i: src[i], name="dst"),
        {},
    ),
)


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the instructions of this file."""
    monkeypatch.setattr(intrinsics, "_registered", {row.name: row for row in ROWS})


def _call(name: str, *args: str) -> str:
    addresses = [f'T.call_intrin("handle", "address_of", {a})' if "[" in a else a for a in args]
    return f'T.evaluate(T.call_intrin("handle", "intrinsic.test.{name}", {", ".join(addresses)}))'


def test_a_shuffle_in_place_exchanges_registers() -> None:
    body = f"""
    a = T.decl_buffer((2,), "float32", scope="local")
    a[1] = x[t]
    for step in range(3):
        {_call("shuffle", "a[1]", "a[1]", "T.shift_left(1, step)")}
    y[t] = a[1]
    """
    (x,) = _arrays((256,))
    expected = x[:64][np.arange(64) ^ 7]
    np.testing.assert_array_equal(_y(kernel(body), x)[:64], expected)


def test_warps_may_take_different_branches() -> None:
    body = f"""
    a = T.decl_buffer((1,), "float32", scope="local")
    a[0] = x[t]
    if t // 32 == 1:
        {_call("shuffle", "a[0]", "a[0]", "1")}
    y[t] = a[0]
    """
    (x,) = _arrays((256,))
    lanes = np.arange(64)
    np.testing.assert_array_equal(_y(kernel(body), x)[:64], x[np.where(lanes < 32, lanes, lanes ^ 1)])


def test_lanes_may_not() -> None:
    call = _call("shuffle", "a[0]", "a[0]", "1")
    body = f"a = T.decl_buffer((1,), 'float32', scope='local')\nif t % 2 == 1:\n    {call}"
    with pytest.raises(MLCError, match="lies inside a condition, which differs between lanes of a warp"):
        SimtToLoops().run(kernel(body))


def test_scalars_are_the_same_in_all_lanes() -> None:
    body = "a = T.decl_buffer((1,), 'float32', scope='local')\n" + _call("shuffle", "a[0]", "a[0]", "t")
    with pytest.raises(MLCError, match=r"test.shuffle: 'm' is not the same for all of its 32 lanes"):
        SimtToLoops().run(kernel(body))


def test_fragments_belong_to_a_warp() -> None:
    """Each of two warps multiplies its tile of ``s`` with itself; the tile is copied by vectors of 4."""
    body = f"""
    a = T.decl_buffer((8, 4), "float32", scope="warp")
    acc = T.decl_buffer((64,), "float32", scope="local")
    if t % 8 == 0:
        {_call("copy4", "s[t * 4]", "x[t * 4]")}
        {_call("copy4", "s[t * 4 + 4]", "x[t * 4 + 4]")}
    if t % 8 == 1:
        for i in range(24):
            s[t * 4 + 4 + i] = x[t * 4 + 4 + i]
    T.tvm_storage_sync("shared")
    {_call("load", "a[0, 0]", "s[t // 32 * 128]")}
    for i in range(64):
        r[t // 32 * 64 + i] = T.float32(1)
    {_call("product", "r[t // 32 * 64]", "a[0, 0]", "s[t // 32 * 128]")}
    T.tvm_storage_sync("shared")
    y[t] = r[t]
    y[t + 64] = r[t + 64]
    """
    (x,) = _arrays((256,))
    expected = [1 + t[:32].reshape(8, 4) @ t[:32].reshape(4, 8) for t in (x[:128], x[128:])]
    np.testing.assert_allclose(_y(kernel(body), x)[:128], np.stack(expected).ravel(), rtol=1e-4, atol=1e-5)


def test_a_block_of_half_a_warp_cannot_shuffle() -> None:
    text = f"""
    @T.prim_func
    def main(y: T.Buffer((16,), "float32")):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            {_call("shuffle", "y[t]", "y[t]", "1")}
    """
    with pytest.raises(MLCError, match="a block of 16 threads executes an instruction of 32 lanes together"):
        SimtToLoops().run(module(text))
