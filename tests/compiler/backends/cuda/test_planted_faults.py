"""Faults planted in kernels of the compiler, and which tool detects each. docs/cuda.md has the table."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler.backends.cuda.instructions.wgmma import LAYOUT
from mlc_compiler.relax.ops.linear import linear
from mlc_compiler.relax.ops.normalize import rms_norm
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from tests.compiler.backends.cuda.planted import Fault, Subject, replacing
from tests.compiler.backends.cuda.products import Case

DOCUMENT = Path(__file__).parents[4] / "docs" / "cuda.md"
MEANING = {
    "missed": "—",
    "-": "not run",
    "refused": "refused",
    "result": "wrong result",
    "race": "race",
    "wait": "missing wait",
    "uninitialized": "uninitialized read",
    "bounds": "out of bounds",
    "unwritten": "elements not written",
    "alignment": "misaligned access",
    "mask": "lane not in the mask",
    "early": "access before the wait",
    "endless": "endless wait",
}
LENGTH = 1000
SYNC = r'T\.evaluate\(T\.tvm_storage_sync\("shared"\)\)'
SHUFFLE = r'(intrinsic\.cuda\.shfl\.xor\.f32".*)T\.int64\(16\)'
WAIT = r'T\.evaluate\(T\.call_intrin\("handle", "intrinsic\.cuda\.cp_async\.wait", T\.int64\(2\)\)\)'


@cache
def product() -> Subject:
    """A matmul with dequantized weights in shared memory, asynchronous copies in four stages, tensor cores."""
    case = Case(20, 72, 384, "q4 NK", symbolic=False)
    operands, expected = case.arrays()
    return Subject(case.function(), tuple(operands), expected, 2e-2)


@cache
def pipeline() -> Subject:
    """A matmul with both operands copied by TMA in three stages, and wgmma; five steps."""
    case = Case(40, 72, 320, symbolic=False)
    operands, expected = case.arrays()
    target = Target({"kind": "cuda", "arch": ["sm_90a"], "multiprocessors": 1})
    return Subject(case.function(), tuple(operands), expected, 2e-2, target)


@cache
def large_product() -> Subject:
    """A matmul with more rows: tiles that need dynamic shared memory."""
    case = Case(40, 72, 128, "q4 NK", symbolic=False)
    operands, expected = case.arrays()
    return Subject(case.function(), tuple(operands), expected, 2e-2)


@cache
def vector() -> Subject:
    """A matmul with one row: one warp per column."""
    case = Case(1, 40, 96, "q4 NK", symbolic=False)
    operands, expected = case.arrays()
    return Subject(case.function(), tuple(operands), expected, 2e-2)


@cache
def norm() -> Subject:
    """RMSNorm over rows: sums over the threads of a block, by shuffles and shared memory."""
    x = te.placeholder((1, te.var("n"), LENGTH), "float32", "x")
    w = te.placeholder((LENGTH,), "float32", "w")
    rng = np.random.default_rng(0)
    row, weight = rng.normal(size=(1, 3, LENGTH)).astype("f4"), rng.normal(size=LENGTH).astype("f4")
    expected = row / np.sqrt(np.square(row).mean(-1, keepdims=True) + 1e-5) * weight
    func = te.create_prim_func([x, w, rms_norm.te(x, w, axes=(-1,), epsilon=1e-5)])
    return Subject(func, (row, weight), expected.astype("f4"), 1e-4)


@cache
def chain() -> Subject:
    """RMSNorm and a matmul: kernels that may each begin before the previous one has ended (dependent launch)."""
    x, w = te.placeholder((1, 64), "float32", "x"), te.placeholder((16, 64), "float32", "w")
    gain = te.placeholder((64,), "float32", "gain")
    rng = np.random.default_rng(0)
    row, weight, g = (rng.normal(size=shape).astype("f4") for shape in ((1, 64), (16, 64), (64,)))
    expected = (row / np.sqrt(np.square(row).mean(-1, keepdims=True) + 1e-5) * g) @ weight.T
    func = te.create_prim_func([x, gain, w, linear.te(rms_norm.te(x, gain), w)])
    return Subject(func, (row, g, weight), expected, 1e-4, Target("cuda:sm_90a"))


def instruction(name: str) -> str:
    """A regular expression for the statement that calls an instruction."""
    return rf'T\.evaluate\(T\.call_intrin\("handle", "intrinsic\.cuda\.{name}".*\)\)'


FAULTS = {
    "a barrier between writing and reading shared memory is missing": (
        Fault(norm(), kernels=replacing(SYNC, "T.evaluate(0)")),
        "result race race",
    ),
    "a barrier is in a branch that not all threads take": (
        Fault(norm(), kernels=replacing(SYNC, 'if thread_x < 64: T.evaluate(T.tvm_storage_sync("shared"))')),
        "refused race race",
    ),
    "the barrier of a pipeline's stage is missing": (
        Fault(product(), kernels=replacing(SYNC, "T.evaluate(0)")),
        "result race race",
    ),
    "the wait for asynchronous copies is missing": (
        Fault(product(), kernels=replacing(WAIT, "T.evaluate(0)")),
        "missed wait wait",
    ),
    "the wait lets one group of copies too many be under way": (
        Fault(product(), kernels=replacing(WAIT, WAIT.replace("\\", "").replace("(2)", "(3)"))),
        "missed wait wait",
    ),
    "a pipeline reads the stage before": (
        Fault(product(), kernels=replacing(r"x_shared\[part % 4", "x_shared[(part + 3) % 4")),
        "result wait wait",
    ),
    "a pipeline overwrites the stage that is read": (
        Fault(product(), kernels=replacing(r"w_shared\[\(part \+ 1\) % 4", "w_shared[part % 4")),
        "result race race",
    ),
    "a lane takes the results of another row of its fragment": (
        Fault(
            product(),
            kernels=replacing(
                r"thread % T.int32\(32\) // T.int32\(4\) \+", "(thread % T.int32(32) // T.int32(4) ^ T.int32(1)) +"
            ),
        ),
        "result result result",
    ),
    "a part of a shared tile is never written": (
        Fault(
            product(),
            kernels=replacing(r"for u in T\.unroll\(4\):(\s+for e in T\.vectorized)", r"for u in T.unroll(3):\1"),
        ),
        "result uninitialized uninitialized",
    ),
    "blocks write the same columns": (
        Fault(
            product(),
            kernels=replacing(r"column: T\.int64 = column_block \* 64", "column: T.int64 = column_block * 56"),
        ),
        "result race race",
    ),
    "the block of the last columns is not launched": (
        Fault(
            product(),
            kernels=replacing(
                r"T\.thread_binding\(2, thread=\"blockIdx\.y\"", 'T.thread_binding(1, thread="blockIdx.y"'
            ),
        ),
        "result unwritten result",
    ),
    "the guard of the rows is missing": (
        Fault(product(), kernels=replacing(r"if row < 20:", "if row < 32:"), native=False),
        "- bounds bounds",
    ),
    "codes of a word are taken in another order": (
        Fault(vector(), kernels=replacing(r"place % 8 // 2 \+ place % 8 % 2 \* 4", "place % 8")),
        "result result result",
    ),
    "an index is one too large": (
        Fault(
            norm(),
            kernels=replacing(r"w\[i2_0 \* 512 \+ thread_x \* 4 \+ i2_2\]", "w[i2_0 * 512 + thread_x * 4 + i2_2 + 1]"),
            native=False,
        ),
        "- bounds bounds",
    ),
    "a shuffle exchanges with the wrong lane": (
        Fault(norm(), kernels=replacing(SHUFFLE, r"\g<1>T.int64(8)")),
        "result result result",
    ),
    "a shuffle names half of the warp's lanes": (
        Fault(norm(), ptx=replacing(r"(shfl\.sync\.bfly\.b32.*), -1;", r"\1, 65535;")),
        "- mask mask",
    ),
    "a vector access is not aligned": (
        Fault(norm(), ptx=replacing(r"(ld\.global\S*\.v4\.b32\s+\{[^}]*\}, \[%rd\d+)\]", r"\1+4]", 1)),
        "- alignment alignment",
    ),
    "code generation selects another instruction": (
        Fault(norm(), ptx=replacing(r"rsqrt\.approx", "sqrt.approx")),
        "- result result",
    ),
    "a kernel is not launched": (
        Fault(
            norm(), host=replacing(r"T\.evaluate\(T\.call_intrin\(\"handle\", \"cuda\.launch\".*\)", "T.evaluate(0)")
        ),
        "- unwritten result",
    ),
    "a kernel does not wait for the kernel before it": (
        Fault(chain(), ptx=replacing(r"griddepcontrol\.wait;", "")),
        "- early early",
    ),
    "two arguments of a launch are exchanged": (
        Fault(norm(), host=replacing(r"x\[0, 0, 0\](.*)w\[0\](.*)\n", r"w[0]\1x[0, 0, 0]\2\n")),
        "- bounds bounds",
    ),
    "the wait for the bytes of a stage is missing": (
        Fault(pipeline(), kernels=replacing(instruction("mbarrier.wait"), "T.evaluate(0)"), native=False),
        "- wait wait",
    ),
    "a stage expects too few bytes": (
        Fault(pipeline(), kernels=replacing(r"T\.int32\(32768\)", "T.int32(16384)"), native=False),
        "- endless endless",
    ),
    "the phase of a stage is not flipped": (
        Fault(pipeline(), kernels=replacing(r"\(before \+ 1\) // 3 % 2", "0"), native=False),
        "- race race",
    ),
    "a stage is filled before all warps have multiplied it": (
        Fault(pipeline(), kernels=replacing(instruction("mbarrier.acquire"), "T.evaluate(0)"), native=False),
        "- race race",
    ),
    "a stage is freed before its products are complete": (
        Fault(pipeline(), kernels=replacing(r'(wgmma\.wait\.n128".*)T\.int64\(1\)', r"\1T.int64(2)"), native=False),
        "- race race",
    ),
    "warps do not say that they have multiplied a stage": (
        Fault(pipeline(), kernels=replacing(instruction("mbarrier.arrive"), "T.evaluate(0)"), native=False),
        "- endless endless",
    ),
    "products read a tile with another swizzle": (
        Fault(pipeline(), ptx=replacing(str(LAYOUT), str(LAYOUT | 1 << 63))),
        "- result result",
    ),
    "a launch has too little shared memory": (
        Fault(large_product(), host=replacing(r"T\.int64\(65536\)", "T.int64(49168)")),
        "- bounds bounds",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_levels_that_find_a_fault(name: str, tmp_path: Path) -> None:
    fault, expected = FAULTS[name]
    found = fault.by_loops(), fault.by_simulator(), fault.by_driver(tmp_path)
    assert " ".join(found) == expected


@pytest.mark.parametrize("subject", [product, pipeline, vector, norm])
def test_kernels_without_faults_pass(subject, tmp_path: Path) -> None:
    fault = Fault(subject(), kernels=lambda text: text)
    assert (fault.by_loops(), fault.by_simulator(), fault.by_driver(tmp_path)) == ("missed",) * 3


def test_kernels_that_wait_for_each_other_pass(tmp_path: Path) -> None:
    fault = Fault(chain(), kernels=lambda text: text)
    assert (fault.by_simulator(), fault.by_driver(tmp_path)) == ("missed",) * 2


def test_the_documentation_has_every_fault() -> None:
    text = DOCUMENT.read_text().split("| fault |", 1)[1].split("\n\n", 1)[0]
    table = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    found = {row[0]: row[1:] for row in table}
    assert found == {name: [MEANING[word] for word in words.split()] for name, (_, words) in FAULTS.items()}
