"""Table lookups of bytes: x86-64 with each width of its shuffle, AArch64 in emulation, and the interpreter."""

# mypy: ignore-errors

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.interp import run_function
from mlc_compiler.ir.expr import const
from mlc_compiler.ir.module import IRModule
from mlc_compiler.script import T
from tests.compiler.backends.cpu.emulated import emulate

TABLE = np.random.default_rng(0).permutation(np.arange(64, dtype=np.uint8)) * 4 + 1


def lookup(lanes, entries=16):
    words = [const(int(word), "uint32") for word in TABLE[:entries].view("<u4")]

    @T.prim_func
    def main(x: T.Buffer((lanes,), "uint32"), out: T.Buffer((lanes,), "uint32")):
        for i in T.vectorized(lanes):
            out[i] = T.call_intrin("uint32", "lookup_bytes", x[i], *words)

    return main


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 48])
@pytest.mark.parametrize("entries", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v4", "cpu:x86-64-v3", "cpu:x86-64", "cpu:neoverse-n1"])
def test_each_byte_is_looked_up(target, entries, lanes):
    indices = np.random.default_rng(lanes).integers(0, 256, 4 * lanes, np.uint8)
    mod, x, out = IRModule({"main": lookup(lanes, entries)}), indices.view("<u4"), np.zeros(lanes, np.uint32)
    if "neoverse" in target:
        emulate(mod, target)["main"](x, out)
    else:
        build(mod, target)["main"](x, out)
    assert np.array_equal(out.view(np.uint8), TABLE[indices % entries])


@pytest.mark.parametrize("entries", [16, 64])
def test_in_the_interpreter(entries):
    indices = np.arange(entries, dtype=np.uint8) + np.uint8(entries)
    out = np.zeros(entries // 4, np.uint32)
    run_function(IRModule({"main": lookup(entries // 4, entries)}), "main", indices.view("<u4"), out)
    assert np.array_equal(out.view(np.uint8), TABLE[:entries])
