"""reindex, cache_inplace, decompose_padding, transform_block_layout and rolling_buffer: what they make and refuse.

``tests/compiler/interop/test_schedule_steps.py`` compares them with Apache TVM's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.script import parse
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule, ScheduleError
from tests.compiler.schedule.operators import CASES, Case

Steps = Callable[[Schedule], object]


def rolled(s: Schedule, factor: int = 2) -> None:
    """Both intermediate results of the stencils as windows of tiles of rows."""
    rows, _ = s.split(s.get_loops("out")[0], [None, factor])
    for block in ("coarse", "fine"):
        s.compute_at(block, rows)
        s.rolling_buffer(block, 0)


def test_windows_of_a_chain_are_built_and_compute_the_same() -> None:
    case = CASES["stencils"]()
    s = Schedule(case.func)
    rolled(s)
    assert {b.name: b.shape[0].value for b in s.func.body.block.alloc_buffers} == {"coarse": 4, "fine": 9}  # type: ignore[attr-defined]
    given, expected = case.arguments(), case.run(case.func)
    build(s.mod)["main"](*given)
    np.testing.assert_array_equal(given[-1], expected[-1])


def test_each_element_of_a_window_is_computed_once() -> None:
    s = Schedule(CASES["stencils"]().func)
    rows, _ = s.split(s.get_loops("out")[0], [None, 2])
    s.compute_at("coarse", rows)
    s.rolling_buffer("coarse", 0)
    assert "T.where(i_0 < 1 or ax0 >= 2)" in s.func.script()
    assert "coarse[vi % 4, vj]" in s.func.script() or "coarse[v_i % 4, v_j]" in s.func.script()


def function(body: str, size: int = 8) -> Case:
    text = f"""
@T.prim_func
def main(A: T.Buffer(({size},), "int32"), B: T.Buffer(({size},), "int32")):
    t = T.alloc_buffer(({size},), "int32")
{body}"""
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return Case(func)


def block(name: str, statement: str, extent: int = 8, value: str = "i", indent: int = 4) -> str:
    lines = (f"for i in range({extent}):", f'    with T.block("{name}"):')
    lines += (f"        v = T.axis.spatial(8, {value})", f"        {statement}")
    return "".join(" " * indent + line + "\n" for line in lines)


READER = block("B", "B[v] = t[v]")
CASES_REFUSED: dict[str, tuple[Case, Steps, str]] = {
    "reindex of two places": (
        function(block("B", "B[v] = A[v] + A[7 - v]")),
        lambda s: s.reindex("B", "A"),
        "block 'B' accesses 'A' at more than one place",
    ),
    "reindex of an index by data": (
        function(block("t", "t[v] = A[v]") + block("B", "B[v] = A[t[v]]")),
        lambda s: s.reindex("B", "A"),
        "block 'B' reads 'A' at an index that is not known to be inside",
    ),
    "reindex beyond an edge": (
        function(block("B", "B[v] = T.if_then_else(v > 0, A[v - 1], 0)")),
        lambda s: s.reindex("B", "A"),
        "block 'B' reads 'A' at an index that is not known to be inside",
    ),
    "reindex of a part": (
        function(block("t", "t[v] = A[v]", 4) + block("B", "B[v] = t[v]", 4)),
        lambda s: s.reindex("B", "t"),
        "block 'B' is not known to run once for each value",
    ),
    "reindex of what is written under a condition": (
        function(block("t", "t[v] = A[v]", 4) + block("B", "B[v] = T.if_then_else(v < 4, t[v], 0)")),
        lambda s: s.reindex("B", "t"),
        "not all of what would be copied of 't' is known to be written",
    ),
    "reindex of several results for one element": (
        function(block("B", "B[v // 2] = A[v]")),
        lambda s: s.reindex("B", ("write", 0)),
        "block 'B' writes elements of 'B' for several values",
    ),
    "reindex of an accumulator": (
        function(block("B", "B[v] = B[v] + A[v]")),
        lambda s: s.reindex("B", ("write", 0)),
        "block 'B' reads 'B', which it writes",
    ),
    "reindex inside a shared loop": (
        CASES["shared-loop"](),
        lambda s: s.reindex("out", ("read", 0)),
        "loop 'i' around block 'out' holds other blocks too",
    ),
    "no such buffer": (
        function(READER.replace("t[", "A[")),
        lambda s: s.reindex("B", "C"),
        "block 'B' accesses no buffer 'C'",
    ),
    "in place of an input": (
        function(block("B", "B[v] = A[v]")),
        lambda s: s.cache_inplace("B", 0, "local"),
        "block 'B' does not write 'A', which it reads",
    ),
    "in place in no scope": (
        function(block("B", "B[v] = B[v] + 1")),
        lambda s: s.cache_inplace("B", 0, "fast"),
        "got scope 'fast'; expected one of",
    ),
    "padding without a condition": (
        function(block("B", "B[v] = A[v]")),
        lambda s: s.decompose_padding("B", s.get_loops("B")[0]),
        "block 'B' does not store an if_then_else",
    ),
    "padding with a value": (
        function(block("B", "B[v] = T.if_then_else(v < 4, A[v], A[0])")),
        lambda s: s.decompose_padding("B", s.get_loops("B")[0]),
        "block 'B' pads with a value that is no constant",
    ),
    "padding every other element": (
        function(block("B", "B[v] = T.if_then_else(v % 2 < 1, A[v], 0)")),
        lambda s: s.decompose_padding("B", s.get_loops("B")[0]),
        "the condition of block 'B' is more than bounds of its variables",
    ),
    "padding everything": (
        function(block("B", "B[v] = T.if_then_else(v < 3 and v > 4, A[v], 0)")),
        lambda s: s.decompose_padding("B", s.get_loops("B")[0]),
        "no value of 'v' of block 'B' is known to be inside|more than bounds",
    ),
    "padding before another loop": (
        function(block("t", "t[v] = T.if_then_else(v < 4, A[v], 0)") + READER),
        lambda s: s.decompose_padding("t", s.get_loops("B")[0]),
        "loop 'i' does not enclose block 't'",
    ),
    "a layout that pads": (
        function(block("B", "B[v] = A[v]")),
        lambda s: s.transform_block_layout("B", lambda i: (i // 3, i % 3)),
        "rounds the extent of v of block 'B' up",
    ),
    "a layout without an inverse": (
        function(block("B", "B[v] = A[v]")),
        lambda s: s.transform_block_layout("B", lambda i: (i // 3,)),
        "block 'B': .* has no inverse",
    ),
    "a layout of a sum": (
        CASES["matmul"](),
        lambda s: s.transform_block_layout("product", lambda i, j, k: (i, j * 17 + k)),
        "index 1 mixes spatial and reduction variables of block 'product': .*j, .*k",
    ),
    "a layout of loops that were split": (
        function(block("B", "B[v] = A[v]")),
        lambda s: (s.split(s.get_loops("B")[0], [2, 4]), s.transform_block_layout("B", lambda i: (i,))),
        "block 'B' has not one loop of its own",
    ),
    "a layout of parallel loops": (
        function(block("B", "B[v] = A[v]")),
        lambda s: (s.parallel(s.get_loops("B")[0]), s.transform_block_layout("B", lambda i: (i,))),
        "loop 'i' of block 'B' is parallel already",
    ),
    "a layout that turns a scan": (
        CASES["scan"](),
        lambda s: s.transform_block_layout("scan", lambda i, j: (j, i)),
        "transform_block_layout: the order of .* matters: 'scan' writes 'S', which 'scan' reads",
    ),
    "a window without a loop": (
        function(block("t", "t[v] = A[v]") + READER),
        lambda s: s.rolling_buffer("t", 0),
        "no loop is around block 't' and all readers of 't'; use compute_at first",
    ),
    "a window of a result": (
        function(block("B", "B[v] = A[v]")),
        lambda s: s.rolling_buffer("B", 0),
        "'B' is a parameter of the function",
    ),
    "windows side by side": (
        function(block("t", "t[v] = A[v]") + READER),
        lambda s: (s.compute_at("t", s.split(s.get_loops("B")[0], [2, 4])[0]), s.rolling_buffer("t", 0)),
        "what block 't' writes to 't' does not overlap between iterations of 'i_0'",
    ),
    "a window in parallel": (
        CASES["stencils"](),
        lambda s: (
            s.compute_at("coarse", s.split(s.get_loops("out")[0], [None, 2])[0]),
            s.parallel(s.get_loops("out")[0]),
            s.rolling_buffer("coarse", 0),
        ),
        "loop 'i_0' around block 'coarse' is parallel",
    ),
    "a window whose producer was rolled before": (
        CASES["stencils"](),
        lambda s: (
            [s.compute_at(b, s.get_loops("out")[0]) for b in ("coarse", "fine")]
            and (s.rolling_buffer("fine", 0), s.rolling_buffer("coarse", 0))
        ),
        "what block 'fine' writes may differ between values of",
    ),
}


@pytest.mark.parametrize("name", CASES_REFUSED)
def test_refusals_name_block_loop_and_reason(name: str) -> None:
    case, steps, why = CASES_REFUSED[name]
    s = Schedule(case.func)
    with pytest.raises(ScheduleError, match=why):
        steps(s)


EARLIER = """
    for i in range(6):
        for j in range(3):
            with T.block("t"):
                v = T.axis.spatial(8, i + j)
                t[v] = A[v]
        with T.block("B"):
            v = T.axis.spatial(6, i)
            B[v] = t[T.max(v - 2, 0)]
"""


def test_what_reads_beyond_the_window_of_its_iteration_keeps_the_buffer() -> None:
    """Block B reads what an earlier iteration wrote."""
    s = Schedule(function(EARLIER).func)
    with pytest.raises(ScheduleError, match="block 'B' reads 't' outside of what one iteration of 'i' writes"):
        s.rolling_buffer("t", 0)
