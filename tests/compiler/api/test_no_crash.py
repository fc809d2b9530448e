"""Invalid arguments never crash the process: calls in a subprocess, from Python and through the C interface."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mlc_compiler import build, parse

ROOT = Path(__file__).resolve().parents[3]
MODULE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, "m"), "float32"), s: R.Shape(["k"])):
        n = T.int64()
        m = T.int64()
        k = T.int64()
        with R.dataflow():
            y = R.reshape(R.matmul(x, w), R.shape([n * m, 1]))
            z = R.broadcast_to(y, R.shape([n * m, k]))
            R.output(z)
        return z

    @T.prim_func
    def narrow(a: T.handle, b: T.handle):
        k = T.int32()
        A = T.match_buffer(a, (k,), "float32")
        B = T.match_buffer(b, (k * 2,), "float32")
        for i in range(k * 2):
            with T.block("B"):
                vi = T.axis.spatial(k * 2, i)
                B[vi] = A[vi // 2]
"""
ANSWERS = """
fits | called
no tensor | main: argument x is a null pointer; expected a tensor of float32
no object | main: argument x is a null pointer; expected a tensor of float32
a number | main: argument x is not a tensor (type index 3); expected float32
none | main: argument x is not a tensor (type index 0); expected float32
text | main: argument x is not a tensor (type index 8); expected float32
an object | main: argument x is not a tensor (type index 64); expected float32
unknown kind | main: argument x is not a tensor (type index -5); expected float32
no data | main: argument x has no memory: its data is a null pointer
no shape | main: argument x has no shape; expected 2 axes
negative size | main: argument x has a size of -2; expected 0 or more
huge | main: argument x has about 7.38e+19 bytes; expected what memory can hold
negative rank | main: argument x has -1 axes; expected 2
other lanes | main: argument x has another dtype (DLPack code 2, 32 bits); expected float32
offset | main: argument x is not aligned to its element size
a GPU | main: argument x lies on device type 2; expected a CPU tensor
sizes that overflow | main: the arguments make sizes of about 1.21e+24; expected at most 1.41e+14
negative scalar | main: argument out0 has a size of -2; expected 0 or more
empty without data | called
more than 32 bits | narrow: argument A has size 4294967300 on axis 0; expected at most 2147483647
32 bits overflow | narrow: the arguments make sizes of about 2.15e+09; expected at most 2.15e+09
no arguments | main: got a null pointer for the arguments or for the result
no result | main: got a null pointer for the arguments or for the result
negative count | main: takes 5 arguments; got -1
"""


def run(*command: str) -> str:
    """The output of a module run as a subprocess; its last lines name the call when it fails."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stdout.splitlines()[-3:], done.stderr[-2000:])
    return done.stdout


def test_calls_through_the_c_interface():
    lib = build(parse(MODULE), num_threads=1)
    assert run("tests.compiler.api.c_abi", str(lib.path)).splitlines() == ANSWERS.strip().splitlines()


def test_random_arguments():
    outcome = run("tests.compiler.api.garbage", "--count", "3000").splitlines()[-1]
    right, refused = (int(part.split()[0]) for part in outcome.split(", "))
    assert right > 500 and refused > 1500 and right + refused == 3000
