"""Table lookups of bytes: x86-64 with each width of its shuffle, AArch64 in emulation, and the interpreter."""

# mypy: ignore-errors

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.interp import run_function
from mlc_compiler.ir.module import IRModule
from mlc_compiler.script import T
from tests.compiler.backends.cpu.emulated import emulate

TABLE = np.arange(16, dtype=np.uint8)[::-1] * 17


def lookup(lanes):
    first, second, third, last = (int(word) for word in TABLE.view("<u4"))

    @T.prim_func
    def main(x: T.Buffer((lanes,), "uint32"), out: T.Buffer((lanes,), "uint32")):
        for i in T.vectorized(lanes):
            out[i] = T.call_intrin(
                "uint32", "lookup_bytes", x[i], T.uint32(first), T.uint32(second), T.uint32(third), T.uint32(last)
            )

    return main


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 48])
@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "cpu:x86-64", "cpu:neoverse-n1"])
def test_each_byte_is_looked_up(target, lanes):
    indices = np.random.default_rng(lanes).integers(0, 16, 4 * lanes, np.uint8)
    mod, x, out = IRModule({"main": lookup(lanes)}), indices.view("<u4"), np.zeros(lanes, np.uint32)
    if "neoverse" in target:
        emulate(mod, target)["main"](x, out)
    else:
        build(mod, target)["main"](x, out)
    assert np.array_equal(out.view(np.uint8), TABLE[indices])


def test_in_the_interpreter():
    indices = np.arange(16, dtype=np.uint8)
    out = np.zeros(4, np.uint32)
    run_function(IRModule({"main": lookup(4)}), "main", indices.view("<u4"), out)
    assert np.array_equal(out.view(np.uint8), TABLE)
