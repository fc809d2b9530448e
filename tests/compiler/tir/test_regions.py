"""Regions that a block reads and writes, inferred from its statements."""

from __future__ import annotations

from typing import Any

import pytest

from mlc_compiler.ir.visitor import walk
from mlc_compiler.script import parse, script
from mlc_compiler.tir.nodes import Block

HEADER = """
@T.prim_func
def f(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32"), at: T.Buffer((32,), "int64"), n: T.int64):
    for i in range(8):
        with T.block("b"):
            v = T.axis.spatial(8, i)
"""

CASES: dict[str, tuple[list[str], list[str]]] = {
    "B[v, 0] = A[v, v * 2 + 1]": (["A[v, v * 2 + 1]"], ["B[v, 0]"]),
    "B[v, 0] = A[v, 0] + A[v + 1, 0]": (["A[v, 0]", "A[v + 1, 0]"], ["B[v, 0]"]),
    "B[v, 0] = B[v, 0] + 1.0": (["B[v, 0]"], ["B[v, 0]"]),
    "for j in range(4): B[v * 4 + j, j] = A[j, v]": (["A[0:4, v]"], ["B[v * 4:v * 4 + 4, 0:4]"]),
    "for j, k in T.grid(4, 3): B[v, j * 3 + k] = A[v, 0]": (["A[v, 0]"], ["B[v, 0:12]"]),
    "for j in range(4): B[v, 7 - j] = A[v, 31 - j * 2]": (["A[v, 25:32]"], ["B[v, 4:8]"]),
    "for j in range(n): B[v, j] = A[j * 2, v]": (["A[0:n * 2 - 1, v]"], ["B[v, 0:n]"]),
    "for j in range(8): B[v, j // 2] = A[v, j % 2]": (["A[v, 0:2]"], ["B[v, 0:4]"]),
    "B[at[v], 0] = A[0, at[v]]": (["A[0, 0:32]", "at[v]"], ["B[0:32, 0]"]),
    "if A[v, 0] > 0.0: B[v, 0] = A[v, 1]": (["A[v, 0]", "A[v, 1]"], ["B[v, 0]"]),
}


@pytest.mark.parametrize("statement", CASES)
def test_regions_of_a_statement(statement: str) -> None:
    assert regions(f"{HEADER}            {statement}\n") == CASES[statement]


def regions(text: str) -> tuple[list[str], list[str]]:
    block = next(n for n in walk(parse(text)) if isinstance(n, Block) and n.name == "b")
    return shown(block.reads), shown(block.writes)


def shown(found: Any) -> list[str]:
    return [script(region) for region in found]


def test_a_reduction_with_init_does_not_read_what_it_accumulates() -> None:
    text = (
        HEADER + "            with T.init():\n                B[v, 0] = 0.0\n            B[v, 0] = B[v, 0] + A[v, 1]\n"
    )
    assert regions(text) == (["A[v, 1]"], ["B[v, 0]"])


def test_blocks_inside_count_with_the_values_bound_to_their_variables() -> None:
    inner = """
            local = T.alloc_buffer((4,), "float32")
            for j in range(4):
                with T.block("inner"):
                    w = T.axis.spatial(32, v * 4 + j)
                    local[w % 4] = A[w, w + 1]
                    B[w, 0] = local[0]
"""
    assert regions(HEADER + inner) == (["A[v * 4:v * 4 + 4, v * 4 + 1:v * 4 + 1 + 4]"], ["B[v * 4:v * 4 + 4, 0]"])
