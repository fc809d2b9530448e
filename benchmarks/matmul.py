"""Matmuls written as tensor expressions and schedules, compared with Apache TVM and the limits of one core.

    python benchmarks/matmul.py

(a) float32, 128 x 128 x 128 with ReLU: four schedule steps, beside Apache TVM's code for the same scheduled function;
(b) float32, 1024 x 1024 x 1024: packed operands, tiles in registers, as a share of the peak;
(c) 4-bit weights times 8-bit activations: one row as a share of the read bandwidth, 128 rows as a share of the peak.

All on one thread. Every result is compared with numpy's before it is timed; (c) also for the targets FALLBACKS.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import int4_matmul
import numpy as np
import tvm
from float_matmul import four_steps, scheduled_product_relu, tiled_product
from tuning_workloads import product_relu

from mlc_cli import console
from mlc_compiler import build, parse, structural_equal
from mlc_compiler.backends.cpu.machine import Cpu
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from mlc_evaluation.machine_limits import machine_name, measure_int8, measure_limits
from mlc_version import __version__

RESULTS = Path(__file__).resolve().parent / "results" / "matmul.json"
PACKAGES = ("apache-tvm", "llvmlite", "numpy")
FALLBACKS = ("cpu:x86-64-v3", "cpu:generic")
CACHE_BYTES = 200 << 20  # weights of this size come from memory, not from a cache
Call = Callable[[], object]


@dataclass(frozen=True)
class Proof:
    """One matmul. amount: per second, in ``unit``; limit: that of the reference ``against``, in the same unit."""

    name: str
    amount: float
    unit: str
    limit: float
    against: str

    @property
    def ratio(self) -> float:
        return self.amount / self.limit


@dataclass(frozen=True)
class Result:
    """One run. checked: the targets on which (c) matched numpy."""

    machine: str
    versions: dict[str, str]
    checked: tuple[str, ...]
    proofs: tuple[Proof, ...]


def beside_tvm(size: int, rounds: int) -> Proof:
    """(a): Apache TVM's scheduled function, parsed from its text and compiled here; must equal this project's."""
    scheduled = _scheduled_by_tvm(size)
    func = parse(scheduled.script())["main"]
    assert isinstance(func, PrimFunc)
    assert structural_equal(replace(func, attrs={}), replace(scheduled_product_relu(size), attrs={}))
    theirs = tvm.compile(scheduled, target=tvm.target.Target({"kind": "llvm", "mcpu": Target("cpu").cpu}))["main"]

    a, b = _random(size, size), _random(size, size)
    c = np.zeros((size, size), np.float32)
    tensors = [tvm.runtime.tensor(x) for x in (a, b, c)]
    ours = _call(func, Target("cpu"), a, b, c)
    ours()
    theirs(*tensors)
    for result in (c, tensors[2].numpy()):
        np.testing.assert_allclose(result, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)
    flop = 2 * size**3 / 1e9
    here, there = _in_turns([ours, lambda: theirs(*tensors)], rounds)
    return Proof(f"f32 {size}^3 relu", flop / here, "GFLOP/s", flop / there, "apache-tvm")


def _scheduled_by_tvm(size: int) -> tvm.IRModule:
    s = tvm.s_tir.Schedule(tvm.IRModule({"main": tvm.te.create_prim_func(product_relu(tvm.te, size))}))
    four_steps(s, s.get_sblock("Y"), s.get_sblock("C"))
    return s.mod


def beside_peak(size: int, rounds: int) -> Proof:
    """(b): register tiles of 8 rows by two vectors."""
    to = Target("cpu")
    a, b = _random(size, size), _random(size, size)
    c = np.zeros((size, size), np.float32)
    call = _call(tiled_product(size, 8, 2 * Cpu.of(to).lanes()), to, a, b, c)
    call()
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
    (seconds,), limit = _in_turns([call], rounds), measure_limits(1).flop_per_s
    return Proof(f"f32 {size}^3 packed", 2 * size**3 / seconds / 1e9, "GFLOP/s", limit / 1e9, "multiply-add peak")


def int4_row(n: int, k: int, rounds: int) -> Proof:
    """(c), one row: limited by reading the weights."""
    operands, call = _int4(1, n, k, Target("cpu"))
    _check_int4(operands)
    (seconds,), limit = _in_turns([call], rounds), measure_limits(1).read_bytes_per_s
    gigabytes = operands.weight_bytes / 1e9
    return Proof(f"int4 x int8 1 x {k} x {n}", gigabytes / seconds, "GB/s", limit / 1e9, "read bandwidth")


def int4_rows(m: int, n: int, k: int, rounds: int) -> Proof:
    """(c), many rows: limited by 8-bit dot products."""
    operands, call = _int4(m, n, k, Target("cpu"))
    _check_int4(operands)
    (seconds,), limit = _in_turns([call], rounds), measure_int8(1)
    assert limit is not None  # with VNNI
    return Proof(f"int4 x int8 {m} x {k} x {n}", 2 * m * n * k / seconds / 1e9, "Gop/s", limit / 1e9, "8-bit peak")


def check_fallbacks() -> tuple[str, ...]:
    """Check (c) against numpy for targets without VNNI; returns the targets."""
    for name in FALLBACKS:
        for m in (1, 8):
            _check_int4(_int4(m, 64, 256, Target(name))[0])
    return FALLBACKS


def _int4(m: int, n: int, k: int, to: Target) -> tuple[int4_matmul.Operands, Call]:
    """Operands with their computed result, and the call that computes it."""
    func = int4_matmul.schedule(int4_matmul.definition(m, n, k), min(m, 8), to).func
    operands = int4_matmul.operands(m, n, k)
    call = _call(func, to, *operands.arrays, operands.out)
    call()
    return operands, call


def _check_int4(operands: int4_matmul.Operands) -> None:
    expected = int4_matmul.reference(operands)
    np.testing.assert_allclose(operands.out, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def _call(func: PrimFunc, to: Target, *args: np.ndarray) -> Call:
    main = build(func, to, num_threads=1)["main"]
    call = main.bind(*args).call

    def run(_worker_team: object = main) -> None:
        """``call``, keeping its worker team alive."""
        call()

    return run


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def _in_turns(calls: list[Call], rounds: int) -> list[float]:
    """Median seconds of each call, run alternately. A sample repeats a call for about 2 ms."""
    repeats = [max(1, round(2e-3 / _seconds(call, 3))) for call in calls]
    samples = [[_seconds(call, n) for call, n in zip(calls, repeats, strict=True)] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*samples, strict=True)]


def _seconds(call: Call, count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def run(rounds: int) -> Result:
    n = CACHE_BYTES * 32 // 18 // 2048 // 16 * 16
    proofs = [beside_tvm(128, rounds), beside_peak(1024, rounds)]
    if Cpu.of(Target("cpu")).has("avx512vnni"):
        proofs += [int4_row(n, 2048, rounds), int4_rows(128, 5632, 2048, rounds)]
    versions = {"mlc-cli": __version__} | {name: metadata.version(name) for name in PACKAGES}
    return Result(machine_name(), versions, check_fallbacks(), tuple(proofs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the JSON goes")
    args = parser.parse_args()
    result = run(args.rounds)
    console.note(f"one thread of {result.machine}; (c) also right on {', '.join(result.checked)}")
    rows = [[p.name, f"{p.amount:.1f}", p.unit, f"{p.limit:.1f}", f"{p.ratio:.2f}", p.against] for p in result.proofs]
    console.table(["product", "reached", "unit", "limit", "ratio", "against"], rows)
    args.output.write_text(console.to_json(result) + "\n")


if __name__ == "__main__":
    main()
