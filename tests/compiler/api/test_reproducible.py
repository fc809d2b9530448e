"""Builds are reproducible: byte-identical in another process with another hash seed and other addresses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = '''
import sys
import numpy as np
ballast = [object() for _ in range(int(sys.argv[3]))]
from mlc_compiler import bind_params, build, emit_asm, nn, parse
from mlc_compiler.nn import op, spec

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(a: R.Tensor(("n", "k"), "float32"), b: R.Tensor(("k", "m"), "float32"), w: R.Tensor((40,), "float32")):
        n = T.int64()
        k = T.int64()
        m = T.int64()
        with R.dataflow():
            scores = R.matmul(a, b)
            shares = R.nn.softmax(scores, axis=-1)
            again = R.matmul(shares, R.permute_dims(shares))
            both = R.concat((again, R.exp(scores)), axis=1)
            flat = R.reshape(both, R.shape([n * (n + m)]))
            called = R.call_dps_packed("env.some", (flat, w), out_sinfo=R.Tensor((n, 40), "float32"))
            result = R.nn.rms_norm(called, w, axes=[-1])
            total = R.sum(R.add(result, R.tanh(result)), axis=[0])
            R.output(result, total)
        return (result, total, a)
"""

class Block(nn.Module):
    def __init__(self, size, inner):
        self.norm = nn.RMSNorm(size)
        self.up = nn.Linear(size, 2 * inner, dtype="float16")
        self.down = nn.Linear(inner, size, bias=False)

    def forward(self, x):
        left, right = op.split(self.up(self.norm(x)), 2, axis=-1)
        return x + self.down(op.silu(left) * right)

class Net(nn.Module):
    def __init__(self):
        self.table = nn.Embedding(50, 24)
        self.blocks = nn.ModuleList([Block(24, 36) for _ in range(3)])

    def forward(self, ids):
        return op.softmax(self.table.lm_head_forward(self.blocks(self.table(ids))))

if sys.argv[1] == "text":
    mod = bind_params(parse(TEXT), "main", {"w": np.linspace(0, 1, 40, dtype=np.float32)})
else:
    mod, _ = Net().export({"forward": {"ids": spec.Tensor(("n",), "int32")}})
build(mod, "cpu:x86-64-v3").export_library(sys.argv[2])
'''


@pytest.mark.parametrize("kind", ["text", "nn"])
def test_two_processes_write_the_same_library(tmp_path: Path, kind: str):
    running = []
    for seed, ballast in (("0", "0"), ("12345", "100003")):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM, kind, f"{seed}.so", ballast]
        running.append(subprocess.Popen(command, cwd=tmp_path, env=environment))
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    first, second = ((tmp_path / f"{seed}.so").read_bytes() for seed in ("0", "12345"))
    assert len(first) > 10_000
    assert first == second
