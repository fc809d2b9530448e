"""Matmul kernels for few rows (GEMV) in the simulator, and their machine code."""

from __future__ import annotations

import re

import numpy as np

from mlc_compiler.backends.cuda.images import find_assembler, llvm_modules
from mlc_compiler.backends.cuda.launches import Images
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.ir import dtype as dt
from mlc_compiler.sim import Counts
from mlc_compiler.sim.host_functions import Device, scratch
from mlc_compiler.target import Target
from tests.compiler.backends.cuda.kernels import main
from tests.compiler.backends.cuda.products import Case, lowered, stored

AMPERE, HOPPER = Target("cuda:sm_80"), Target("cuda:sm_90a")


def simulated(case: Case, target: Target = AMPERE, packs: bool = False) -> Counts:
    """The simulator's counts for the kernel; asserts its results."""
    mod = lowered(case.function(), target, packs=packs)
    host = main(mod)
    images = [Images(text, {}) for text in assemble_modules(llvm_modules(mod, target, {}), target)]
    arrays, expected = case.arrays()
    out = np.full(expected.shape, np.nan, expected.dtype)
    memory = [np.zeros([int(n) for n in b.shape], dt.to_numpy(b.dtype)) for b in scratch(host)]  # type: ignore[call-overload]
    (launched,) = Device.of(images).run(host, *stored(mod, arrays), out, *memory)
    tolerance = 4e-2 if case.dtype == "bfloat16" else 6e-3
    np.testing.assert_allclose(out.astype(np.float32), expected.astype(np.float32), rtol=tolerance, atol=tolerance)
    return launched.counts


def loop_of(case: Case, target: Target) -> str:
    """The PTX of a kernel's loop over reduction steps; asserts that the kernel uses no local memory."""
    (text,) = assemble_modules(llvm_modules(lowered(case.function(), target, packs=True), target, {}), target)
    assemble = find_assembler()
    assert assemble is not None
    (resources,) = assemble(text, target.cpu).resources.values()
    assert resources.stack_bytes == resources.spill_bytes == 0
    loop = re.search(r'\.pragma "nounroll";(.*?)\n\tbar(rier)?\.', text, re.S)
    assert loop is not None
    return loop[1]


def instructions_for_a_load(loop: str) -> float:
    """The instructions of a warp per 512 bytes of weights.

    Moves count only if they make a pair; a pair of ``and`` and ``or`` counts once, as it becomes one LOP3.
    """
    names = re.findall(r"^\t(?:@!?%p\d+ )?([a-z][\w.]*)", loop, re.M)
    pairs = len(re.findall(r"mov\.b32 \t%r\d+, \{", loop))
    count = sum(name not in MOVES for name in names) - min(names.count("and.b32"), names.count("or.b32")) + pairs
    return count / loop.count("ld.global.nc.v4.b32")


MOVES = ("mov.b32", "cvt.u32.u16", "cvt.u64.u32", "mov.pred")
