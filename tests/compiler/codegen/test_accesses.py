"""Consecutive accesses in vectorized loops become one load or store, for all forms of the index."""

from __future__ import annotations

from mlc_compiler.script import T
from tests.compiler.codegen.native import llvm_text


def test_an_index_with_a_name_is_as_good_as_its_value():
    @T.prim_func(private=True)
    def named(a: T.Buffer((4, 16), "float32"), b: T.Buffer((4, 16), "float32")):
        for row in range(4):
            for lane in T.vectorized(8):
                i = 8 + lane
                j = i - 1
                b[row, i] = a[row, j]

    text = llvm_text({"named": named})
    assert "load <8 x float>" in text and "store <8 x float>" in text
    assert "gather" not in text and "scatter" not in text


def test_an_index_from_memory_is_gathered():
    @T.prim_func(private=True)
    def gathered(a: T.Buffer((16,), "float32"), place: T.Buffer((8,), "int64"), b: T.Buffer((8,), "float32")):
        for lane in T.vectorized(8):
            i = place[lane]
            b[lane] = a[i]

    assert "gather" in llvm_text({"gathered": gathered})
