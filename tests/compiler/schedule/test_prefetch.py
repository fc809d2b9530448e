"""prefetch requests the cache lines that later iterations read, and changes no results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.script import parse, script
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule, ScheduleError
from mlc_compiler.verifier import verify
from tests.compiler.codegen.native import assembly
from tests.compiler.schedule.operators import CASES

ROWS, DEPTH = 6, 128
LATER = "T.min(i + (k_0 + 2) // 4, 5), (k_0 + 2) % 4 * 32"
EXPECTED = f"""
with T.block("A_prefetch"):
    T.reads(A[{LATER}:(k_0 + 2) % 4 * 32 + 32])
    T.writes()
    for ax1 in range(2):
        T.evaluate(T.call_intrin("handle", "intrinsic.cpu.prefetch", T.call_intrin("handle", "address_of", A[
            {LATER} + ax1 * 16])))
"""


def sums() -> PrimFunc:
    a = te.placeholder((ROWS, DEPTH), name="A")
    k = te.reduce_axis(DEPTH, "k")
    return te.create_prim_func([a, te.compute((ROWS,), lambda i: te.sum(a[i, k], axis=k), name="B")])


def prefetched(distance: int = 2, level: int = 1) -> Schedule:
    """Rows of four pieces of 32 elements, each of two cache lines."""
    s = Schedule(sums())
    piece, _ = s.split(s.get_loops("B")[1], [None, 32])
    s.decompose_reduction("B", piece)
    s.prefetch("B_update", piece, 1, distance, level=level)
    return s


def plain(text: str) -> str:
    return "".join(text.split())


def test_the_lines_of_a_later_piece_are_asked_for_once() -> None:
    """After the last piece comes the first one of the next row."""
    text = prefetched().func.script()
    assert plain(EXPECTED) in plain(text)
    assert text.count("A_prefetch") == 1


def streams(distance: int) -> Schedule:
    """Two rows at a time, three rows apart, in pieces of 32 elements."""
    s = Schedule(sums())
    row, k = s.get_loops("B")
    stream, row = s.split(row, [2, None])
    piece, inner = s.split(k, [None, 32])
    s.reorder(row, piece, stream, inner)
    s.decompose_reduction("B", piece)
    s.prefetch("B_update", piece, 1, distance, stream)
    return s


def test_iterations_of_an_inner_loop_prefetch_what_they_read_later() -> None:
    text = plain(streams(2).func.script())
    later = "i_0*3+T.min(i_1+(k_0+2)//4,2),(k_0+2)%4*32"
    assert f"T.reads(A[{later}:(k_0+2)%4*32+32])" in text
    assert text.index("fork_0,i_0inT.grid(4,2):") < text.index('withT.block("A_prefetch")') < text.index('"B_update"')


def test_the_inner_loop_must_be_inside() -> None:
    s = Schedule(sums())
    row, k = s.get_loops("B")
    with pytest.raises(ScheduleError, match="loop 'i' is not inside loop 'k'"):
        s.prefetch("B", k, 1, 1, row)


@pytest.mark.parametrize("schedule", [prefetched, streams])
def test_results_are_the_same_and_the_text_parses(schedule: Callable[[int], Schedule]) -> None:
    s = schedule(2)
    a = np.random.default_rng(0).standard_normal((ROWS, DEPTH)).astype(np.float32)
    reread = parse(script(IRModule({"f": s.func.with_attr("global_symbol", "f")})))
    verify(reread)
    for run in (lambda b: run_prim_func(s.func, a, b), lambda b: build(reread)["f"](a, b)):
        b = np.empty(ROWS, np.float32)
        run(b)
        np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)


@pytest.mark.parametrize(
    ("cpu", "level", "mnemonic"),
    [
        ("x86-64", 1, "prefetcht0"),
        ("x86-64", 2, "prefetcht1"),
        ("aarch64", 1, "pldl1keep"),
        ("aarch64", 2, "pldl2keep"),
    ],
)
def test_code_has_the_instruction_of_the_target(cpu: str, level: int, mnemonic: str) -> None:
    """Two lines of each piece; LLVM may unroll the loop over the two."""
    assert assembly(prefetched(level=level).func, Target(f"cpu:{cpu}")).count(mnemonic) >= 1


def test_there_is_no_third_level() -> None:
    with pytest.raises(ScheduleError, match="prefetch: got level 3; expected 1 or 2"):
        prefetched(level=3)


def test_prefetches_do_not_order_concurrent_loops() -> None:
    """What one iteration of a parallel loop asks for may be what another one writes."""
    a = te.placeholder((ROWS, 16), name="A")
    b = te.compute((ROWS, 16), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((ROWS, 16), lambda i, j: b[i, j] * 2.0, name="C")
    s = Schedule(te.create_prim_func([a, c]))
    row = s.get_loops("C")[0]
    s.compute_at("B", row)
    s.prefetch("C", row, 0, 1)
    s.parallel(row)
    x, out = np.ones((ROWS, 16), np.float32), np.empty((ROWS, 16), np.float32)
    run_prim_func(s.func, x, out)
    assert (out == 4).all()


@pytest.mark.parametrize(
    ("block", "index", "loop", "message"),
    [
        ("B_update", 7, 1, "block 'B_update' reads 2 buffers; got index 7"),
        ("B_init", 0, 0, "block 'B_init' reads 0 buffers; got index 0"),
        ("C", 0, 1, "block 'C' is not inside loop"),
    ],
)
def test_refusals_name_the_argument(block: str, index: int, loop: int, message: str) -> None:
    a = te.placeholder((ROWS, DEPTH), name="A")
    k = te.reduce_axis(DEPTH, "k")
    b = te.compute((ROWS,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = Schedule(te.create_prim_func([a, te.compute((ROWS,), lambda i: b[i] + 1.0, name="C")]))
    inner = s.get_loops("B")[loop]
    s.decompose_reduction("B", inner)
    with pytest.raises(ScheduleError, match=message):
        s.prefetch(block, inner, index, 1)
    if loop == 0:
        return
    with pytest.raises(ScheduleError, match="got distance 0"):
        s.prefetch("B_update", inner, 1, 0)


def test_lines_of_rows_that_are_shorter_than_a_line() -> None:
    """Rows of two bfloat16 numbers, of which 32 follow each other: two lines for 32 of them."""
    a, k = te.placeholder((8, 32, 2), "bfloat16", "A"), te.reduce_axis(8, "k")
    b = te.compute((32, 2), lambda i, j: te.sum(te.f32(a[k, i, j]), axis=k), name="B")
    s = Schedule(te.create_prim_func([a, b]))
    i, j, k_loop = s.get_loops("B")
    s.reorder(k_loop, i, j)
    s.decompose_reduction("B", k_loop)
    s.prefetch("B_update", k_loop, 1, 2)
    text = plain(s.func.script())
    assert plain('for ax1 in range(2): T.evaluate(T.call_intrin("handle", "intrinsic.cpu.prefetch"') in text
    assert "A[T.min(k+2,7),ax1*16,0]" in text


def test_a_buffer_of_the_loop_itself_is_refused() -> None:
    s = Schedule(CASES["outer-block"]().func)
    outer = s.get_loops("outer")[0]
    with pytest.raises(ScheduleError, match="'t' is allocated inside loop 'i'"):
        s.prefetch("b", outer, 0, 1)


@pytest.mark.parametrize("loop", [0, 1])
def test_a_buffer_with_sizes_of_32_bits_prints_and_parses(loop: int) -> None:
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((T.int32(6), T.int32(8)), "float32"), B: T.Buffer((T.int32(6), T.int32(8)), "float32")):
    for i, j in T.grid(T.int32(6), T.int32(8)):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
"""
    )
    s = Schedule(func)
    s.prefetch("B", s.get_loops("B")[loop], 0, 3)
    assert first_difference(parse(script(s.func)), s.func) is None


def test_a_buffer_that_is_prefetched_is_not_inlined() -> None:
    a = te.placeholder((ROWS, DEPTH), name="A")
    twice = te.compute((ROWS, DEPTH), lambda i, j: a[i, j] * 2.0, name="T")
    s = Schedule(te.create_prim_func([a, te.compute((ROWS, DEPTH), lambda i, j: twice[i, j] + 1.0, name="B")]))
    s.prefetch("B", s.get_loops("B")[0], 0, 1)
    with pytest.raises(ScheduleError, match="an instruction takes the address of 'T'"):
        s.compute_inline("T")


def test_a_block_of_prefetches_has_nothing_to_cache() -> None:
    s = prefetched()
    with pytest.raises(ScheduleError, match="block 'A_prefetch' only prefetches 'A'"):
        s.cache_read("A_prefetch", 0, "local")
