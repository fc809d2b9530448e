"""Measure limits of this machine: bytes read, float32 multiply-adds and int8 multiply-adds per second."""

from __future__ import annotations

import ctypes
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

BUFFER_BYTES = 10**9  # not a power of two: streams at such distances are in the same banks of memory
FMA_ROUNDS = 10_000_000
CHAINS = 12  # independent accumulators: they hide the latency of an operation, and fit 16 registers with the operand
STREAMS = (1, 4)  # places that a thread reads in turns: prefetchers that stop at page boundaries need several


@dataclass(frozen=True)
class Limits:
    """Limits of `threads` threads together. read_bytes_per_s: from memory. flop_per_s: float32, 2 per multiply-add."""

    threads: int
    read_bytes_per_s: float
    flop_per_s: float


def measure_limits(threads: int, repeats: int = 5) -> Limits:
    """The best of `repeats` runs with `threads` concurrent threads, each on its own memory."""
    width = _vector_width()
    engine = _compile("".join(_read_source(width, streams) for streams in STREAMS) + _fma_source(width))
    read_type = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64, ctypes.c_void_p)
    reads = [read_type(engine.get_function_address(f"read{streams}")) for streams in STREAMS]
    fma = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64, ctypes.c_float)(engine.get_function_address("fma"))

    block_bytes = CHAINS * width * 4
    blocks = BUFFER_BYTES // threads // block_bytes
    buffer = np.ones(BUFFER_BYTES // 4, np.float32)
    starts = [buffer.ctypes.data + part * blocks * block_bytes for part in range(threads)]

    def read_seconds(read: Callable[[int, int], object]) -> float:
        return _seconds(lambda part: read(blocks, starts[part]), threads)

    read_s = min(read_seconds(read) for read in reads * repeats)
    fma_s = min(_seconds(lambda part: fma(FMA_ROUNDS, 0.5), threads) for _ in range(repeats))
    flop = 2 * FMA_ROUNDS * CHAINS * width
    return Limits(threads, threads * blocks * block_bytes / read_s, threads * flop / fma_s)


def measure_int8(threads: int, repeats: int = 5) -> float | None:
    """Operations per second (a multiply-add is two) of 8-bit products on `threads` threads.

    By ``vpdpbusd`` of 64 bytes with AVX-512 VNNI, else by ``vpmaddubsw`` of 32 bytes with AVX2; None without both.
    """
    features = llvm.get_host_cpu_features()
    if features.get("avx512vnni"):
        source, nbytes = _vnni_source(), 64
    elif features.get("avx2"):
        source, nbytes = _maddubs_source(), 32
    else:
        return None
    engine = _compile(source)
    dot = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int32)(engine.get_function_address("dot"))
    seconds = min(_seconds(lambda part: dot(FMA_ROUNDS, 1), threads) for _ in range(repeats))
    return 2 * threads * FMA_ROUNDS * CHAINS * nbytes / seconds


def machine_name() -> str:
    """CPU, operating system and architecture."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return f"{cpu}, {platform.system()} {platform.machine()}"


def _seconds(work: Callable[[int], object], threads: int) -> float:
    """Wall time of `work(part)` on all threads at once; ctypes calls release the GIL."""
    team = [threading.Thread(target=work, args=(part,)) for part in range(threads)]
    start = time.perf_counter()
    for member in team:
        member.start()
    for member in team:
        member.join()
    return time.perf_counter() - start


def _vector_width() -> int:
    """Floats in one vector register of this CPU."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 16
    return 8 if features.get("avx") else 4


def _compile(source: str) -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(llvm.get_host_cpu_name(), features, opt=3)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(source), machine)
    engine.finalize_object()
    return engine


def _read_source(width: int, streams: int) -> str:
    """`float readN(i64 count, ptr start)`: sums `count` blocks of CHAINS vectors, N equal parts of them in turns."""
    lanes, run = f"<{width} x float>", CHAINS // streams
    updates = [
        f"""  %at{j} = getelementptr [{run} x {lanes}], ptr %part{j // run}, i64 %i, i64 {j % run}
  %line{j} = load {lanes}, ptr %at{j}, align 4
  %new{j} = fadd {lanes} %sum{j}, %line{j}"""
        for j in range(CHAINS)
    ]
    parts = [
        f"""  %before{k} = mul i64 %count, {k}
  %part{k} = getelementptr [{run} x {lanes}], ptr %start, i64 %before{k}"""
        for k in range(streams)
    ]
    return _loop(f"read{streams}", "ptr %start", lanes, "\n".join(parts), updates)


def _fma_source(width: int) -> str:
    """`float fma(i64 count, float x)`: `count` rounds of CHAINS vector multiply-adds, in registers."""
    lanes = f"<{width} x float>"
    name = f"@llvm.fma.v{width}f32"
    updates = [f"  %new{j} = call {lanes} {name}({lanes} %xs, {lanes} %sum{j}, {lanes} %xs)" for j in range(CHAINS)]
    source = _loop("fma", "float %x", lanes, _spread("xs", width, "float"), updates)
    return source + f"declare {lanes} {name}({lanes}, {lanes}, {lanes})\n"


def _vnni_source() -> str:
    """`i32 dot(i64 count, i32 x)`: `count` rounds of CHAINS dot products of 64 bytes, in registers."""
    lanes, name = "<16 x i32>", "@llvm.x86.avx512.vpdpbusd.512"
    spread = _spread("words", 16, "i32") + f"\n  %xs = bitcast {lanes} %words to <64 x i8>"
    updates = [f"  %new{j} = call {lanes} {name}({lanes} %sum{j}, <64 x i8> %xs, <64 x i8> %xs)" for j in range(CHAINS)]
    return _loop("dot", "i32 %x", lanes, spread, updates, "i32", "add") + (
        f"declare {lanes} {name}({lanes}, <64 x i8>, <64 x i8>)\n"
    )


def _maddubs_source() -> str:
    """`i32 dot(i64 count, i32 x)`: `count` rounds of CHAINS products of 32 bytes, each with the result before it."""
    lanes, name = "<8 x i32>", "@llvm.x86.avx2.pmadd.ub.sw"
    spread = _spread("words", 8, "i32") + f"\n  %xs = bitcast {lanes} %words to <32 x i8>"
    updates = [
        f"""  %bytes{j} = bitcast {lanes} %sum{j} to <32 x i8>
  %pairs{j} = call <16 x i16> {name}(<32 x i8> %bytes{j}, <32 x i8> %xs)
  %new{j} = bitcast <16 x i16> %pairs{j} to {lanes}"""
        for j in range(CHAINS)
    ]
    return _loop("dot", "i32 %x", lanes, spread, updates, "i32", "add") + (
        f"declare <16 x i16> {name}(<32 x i8>, <32 x i8>)\n"
    )


def _spread(name: str, width: int, element: str) -> str:
    """LLVM IR that sets %name to ``width`` copies of %x."""
    lanes = f"<{width} x {element}>"
    return f"""  %first = insertelement {lanes} poison, {element} %x, i32 0
  %{name} = shufflevector {lanes} %first, {lanes} poison, <{width} x i32> zeroinitializer"""


def _loop(
    name: str, parameter: str, lanes: str, setup: str, updates: list[str], element: str = "float", add: str = "fadd"
) -> str:
    """LLVM IR of a loop that updates each %sum{j} to %new{j}, `count` times; its result depends on all of them."""
    phis = [f"  %sum{j} = phi {lanes} [zeroinitializer, %entry], [%new{j}, %loop]" for j in range(CHAINS)]
    folds = [f"  %fold{j} = {add} {lanes} %{f'fold{j - 1}' if j > 1 else 'new0'}, %new{j}" for j in range(1, CHAINS)]
    lines = [
        f"define {element} @{name}(i64 %count, {parameter}) {{",
        "entry:",
        setup,
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [0, %entry], [%next, %loop]",
        *phis,
        *updates,
        "  %next = add i64 %i, 1",
        "  %more = icmp slt i64 %next, %count",
        "  br i1 %more, label %loop, label %done",
        "done:",
        *folds,
        f"  %lane = extractelement {lanes} %fold{CHAINS - 1}, i32 0",
        f"  ret {element} %lane",
        "}",
    ]
    return "\n".join(lines) + "\n"
