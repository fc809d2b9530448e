"""Measure limits of the GPU: memory reads, launches, grid barriers, tensor core operations.

    python benchmarks/gpu/micro.py

Times that are short compared with a call are differences between two counts, which cancels the call itself. Every
result is checked.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import micro_kernels as kernels
import numpy as np
from cuda_device import Device, read_device
from measuring import Bench, save

from mlc_cli import console
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from mlc_errors import MLCError, UnsupportedError
from mlc_version import __version__

MMA_FLOP = 2 * 16 * 8 * 16  # operations of one instruction m16n8k16, two per multiply-add


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements.

    read_bytes: much larger than the L2 cache. launches, barriers, mma_rounds: two or more counts.
    """

    read_bytes: int = 1 << 30
    read_blocks: Sequence[int] = (1, 2, 4, 8, 16)
    read_threads: int = 256
    launches: Sequence[int] = (10, 100, 1000)
    barriers: Sequence[int] = (100, 2000)
    mma_warps: Sequence[int] = (4, 8, 16)
    mma_accumulators: Sequence[int] = (1, 2, 4, 8)
    mma_rounds: Sequence[int] = (1000, 11000)
    warpgroups: Sequence[int] = (1, 2)
    wgmma_columns: Sequence[int] = (64, 128, 256)


@dataclass(frozen=True)
class Read:
    """A read measurement. blocks: of 256 threads, per multiprocessor. share: of the pin bandwidth."""

    blocks: int
    bytes_per_s: float
    share: float


@dataclass(frozen=True)
class Product:
    """An ``mma.sync`` measurement. warps: per multiprocessor. accumulators: per warp. share: of peak."""

    warps: int
    accumulators: int
    flop_per_s: float
    share: float | None


@dataclass(frozen=True)
class WarpgroupProduct:
    """A ``wgmma`` measurement. warpgroups: per multiprocessor. columns: of an instruction. share: of peak."""

    warpgroups: int
    columns: int
    flop_per_s: float
    share: float | None


@dataclass(frozen=True)
class Micro:
    """The measurements on a GPU.

    In seconds: a launch in a graph, in a stream, and in a graph with programmatic dependent launch (None if the GPU
    lacks it); a call without its launches; a grid barrier. warpgroup_products: empty without ``wgmma``.
    not_measured: what was not measured -> why.
    """

    device: Device
    version: str
    date: str
    read: list[Read]
    launch_seconds: float
    stream_launch_seconds: float
    overlapped_launch_seconds: float | None
    call_seconds: float
    barrier_seconds: float
    products: list[Product]
    warpgroup_products: list[WarpgroupProduct]
    not_measured: dict[str, str]


def measure(bench: Bench, device: Device, sizes: Sizes) -> Micro:
    """Run all measurements."""
    launch, call = launches(bench, sizes, kernels.chain())
    overlapped = launches(bench, sizes, kernels.overlapped_chain())[0] if bench.target.has("sm_90") else None
    return Micro(
        device=device,
        version=__version__,
        date=time.strftime("%Y-%m-%d"),
        read=list(reads(bench, device, sizes)),
        launch_seconds=launch,
        stream_launch_seconds=launches(bench, sizes, kernels.chain(), graph=False)[0],
        overlapped_launch_seconds=overlapped,
        call_seconds=call,
        barrier_seconds=grid_barrier(bench, device, sizes),
        products=list(products(bench, device, sizes)),
        warpgroup_products=list(warpgroup_products(bench, device, sizes)) if bench.target.has("sm_90a") else [],
        not_measured=dict(not_measured(bench)),
    )


def reads(bench: Bench, device: Device, sizes: Sizes) -> Iterator[Read]:
    """The rate of 16-byte loads by all threads of the grid, for several numbers of blocks."""
    random = np.random.default_rng(0).integers(0, 2**32, sizes.read_bytes // 4, dtype=np.uint32)
    for blocks in sizes.read_blocks:
        grid = blocks * device.multiprocessors
        rounds = sizes.read_bytes // (16 * kernels.LOADS * grid * sizes.read_threads)
        library = bench.build(kernels.read(grid, sizes.read_threads, rounds))
        memory = library.context.memory
        words = rounds * kernels.LOADS * grid * sizes.read_threads * 4
        data = memory.loaded(random[:words].reshape(rounds, kernels.LOADS, grid, sizes.read_threads, 4))
        out = memory.zeros((grid, sizes.read_threads), np.dtype(np.uint32))
        rate = 4 * words / bench.seconds(library, data, out)
        _require("read", np.bitwise_xor.reduce(out.numpy(), axis=None), np.bitwise_xor.reduce(random[:words]))
        yield Read(blocks, rate, rate / device.read_bytes_per_s)


def launches(bench: Bench, sizes: Sizes, chain: PrimFunc, graph: bool = True) -> tuple[float, float]:
    """Seconds of one launch, and of a call without its launches."""
    library = bench.build(chain, graph)
    out = library.context.memory.zeros((1,), np.dtype(np.int64))

    def seconds(count: int) -> float:
        took = bench.seconds(library, out, count)
        _require("chain of launches", out.numpy()[0], count)
        return took

    return line(seconds, sizes.launches)


def grid_barrier(bench: Bench, device: Device, sizes: Sizes) -> float:
    """Seconds of one grid barrier with one block per multiprocessor."""
    blocks = device.multiprocessors
    library = bench.build(kernels.barriers(blocks, sizes.read_threads))
    counter = library.context.memory.zeros((1,), np.dtype(np.uint32))

    def seconds(count: int) -> float:
        took = bench.seconds(library, counter, count)
        _require("barriers", counter.numpy()[0], blocks * count)
        return took

    return line(seconds, sizes.barriers)[0]


def products(bench: Bench, device: Device, sizes: Sizes) -> Iterator[Product]:
    """The rate of ``mma.sync`` m16n8k16 of float16 to float32, by warps and by independent accumulators of a warp."""
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-1, 2, (kernels.WARP, n)).astype(np.float16) for n in (8, 4))
    for warps in sizes.mma_warps:
        for accumulators in sizes.mma_accumulators:
            library = bench.build(kernels.multiply(device.multiprocessors, warps, accumulators))
            memory = library.context.memory
            out = memory.zeros((device.multiprocessors, warps, kernels.WARP, 4), np.dtype(np.float32))
            a, b = memory.loaded(left), memory.loaded(right)

            def seconds(rounds: int) -> float:
                took = bench.seconds(library, a, b, out, rounds)  # noqa: B023
                _require("mma.sync", out.numpy()[-1, -1], expected_sums(left, right, rounds))  # noqa: B023
                return took

            per_round, _ = line(seconds, sizes.mma_rounds)
            flop = MMA_FLOP * kernels.MMA_IN_LOOP * warps * device.multiprocessors
            rate = flop / per_round
            yield Product(warps, accumulators, rate, device.mma_flop_per_s and rate / device.mma_flop_per_s)


def warpgroup_products(bench: Bench, device: Device, sizes: Sizes) -> Iterator[WarpgroupProduct]:
    """The rate of ``wgmma`` of float16 to float32, by groups of four warps and by columns."""
    rng, depth = np.random.default_rng(0), kernels.WARPGROUP_DEPTH
    for groups in sizes.warpgroups:
        for columns in sizes.wgmma_columns:
            left, right = (rng.integers(-1, 2, (rows, depth)).astype(np.float16) for rows in (64, columns))
            library = bench.build(kernels.multiply_by_warpgroups(device.multiprocessors, groups, columns))
            memory = library.context.memory
            shape = (device.multiprocessors, groups, kernels.WARPGROUP, columns // 2)
            a, b, out = memory.loaded(left), memory.loaded(right), memory.zeros(shape, np.dtype(np.float32))

            def seconds(rounds: int) -> float:
                took = bench.seconds(library, a, b, out, rounds)  # noqa: B023
                _require("wgmma", out.numpy()[-1, -1], expected_warpgroup_sums(left, right, rounds))  # noqa: B023
                return took

            per_round, _ = line(seconds, sizes.mma_rounds)
            rate = 2 * 64 * columns * depth * groups * device.multiprocessors / per_round
            yield WarpgroupProduct(groups, columns, rate, device.mma_flop_per_s and rate / device.mma_flop_per_s)


def not_measured(bench: Bench) -> Iterator[tuple[str, str]]:
    """Yield what this GPU or this benchmark does not support, with the reason."""
    if not bench.target.has("sm_90"):
        yield "programmatic dependent launch", f"not available: {bench.target.cpu} has no griddepcontrol"
    if not bench.target.has("sm_90a"):
        yield "wgmma", f"not available: {bench.target.cpu} does not have it"


def line(seconds: Callable[[int], float], counts: Sequence[int]) -> tuple[float, float]:
    """Slope and intercept of the line through the times of the first and the last count."""
    times = [seconds(count) for count in counts]
    slope = (times[-1] - times[0]) / (counts[-1] - counts[0])
    return slope, times[0] - counts[0] * slope


def expected_sums(left: np.ndarray, right: np.ndarray, rounds: int) -> np.ndarray:
    """The result of ``kernels.multiply`` for a warp, float32 [32, 4]: exact for small integers.

    Layout of the fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
    """
    lane = np.arange(kernels.WARP)
    row, pair = lane // 4, lane % 4 * 2
    a, b, at = np.zeros((16, 16)), np.zeros((16, 8)), np.arange(2)
    for i in range(4):
        a[row[:, None] + i % 2 * 8, pair[:, None] + at + i // 2 * 8] = left[:, 2 * i : 2 * i + 2]
    for i in range(2):
        b[pair[:, None] + at + i * 8, row[:, None]] = right[:, 2 * i : 2 * i + 2]
    product = a @ b * (rounds * kernels.MMA_IN_LOOP)
    halves = [product[row[:, None] + 8 * i, pair[:, None] + at] for i in range(2)]
    return np.concatenate(halves, axis=1).astype(np.float32)


def expected_warpgroup_sums(left: np.ndarray, right: np.ndarray, rounds: int) -> np.ndarray:
    """The result of ``kernels.multiply_by_warpgroups`` for a group, float32 [128, columns / 2].

    It is exact for small integers. Layout: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16".
    """
    lane, e = np.arange(kernels.WARPGROUP)[:, None], np.arange(len(right) // 2)
    row = lane // 32 * 16 + lane % 32 // 4 + e // 2 % 2 * 8
    product = left.astype(np.float32) @ right.astype(np.float32).T
    return product[row, e // 4 * 8 + lane % 4 * 2 + e % 2] * np.float32(rounds)


def _require(what: str, found: Any, expected: Any) -> None:
    if not np.array_equal(found, expected):
        raise MLCError(f"{what}: the result is {found}; expected {expected}", hint="its time means nothing")


def show(result: Micro) -> None:
    """Print the measurements."""
    device = result.device
    console.note(f"{device.name}: {device.multiprocessors} multiprocessors at {device.clock_hz / 1e9:.2f} GHz")
    rows = [[r.blocks, f"{r.bytes_per_s / 1e9:.0f}", f"{r.share:.0%}"] for r in result.read]
    console.table(["blocks per multiprocessor", "read GB/s", "of the pins"], rows)
    shares = ["" if p.share is None else f"{p.share:.0%}" for p in result.products]
    rows = [[p.warps, p.accumulators, f"{p.flop_per_s / 1e12:.0f}", s] for p, s in zip(result.products, shares)]
    console.table(["warps", "accumulators", "mma.sync TFLOP/s", "of the tensor cores"], rows)
    if result.warpgroup_products:
        shares = ["" if p.share is None else f"{p.share:.0%}" for p in result.warpgroup_products]
        of_groups = zip(result.warpgroup_products, shares)
        rows = [[p.warpgroups, p.columns, f"{p.flop_per_s / 1e12:.0f}", s] for p, s in of_groups]
        console.table(["warpgroups", "columns", "wgmma TFLOP/s", "of the tensor cores"], rows)
    times = {
        "launch in a graph": result.launch_seconds,
        "launch in a stream": result.stream_launch_seconds,
        "launch in a graph, overlapped": result.overlapped_launch_seconds,
        "call of a graph": result.call_seconds,
        "barrier of the grid": result.barrier_seconds,
    }
    console.table(["", "us"], [[name, f"{1e6 * t:.2f}"] for name, t in times.items() if t is not None])
    for what, why in result.not_measured.items():
        console.note(f"{what}: {why}")


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    try:
        device = read_device()
    except UnsupportedError as error:
        console.note(f"{error.message}: nothing was measured")
        return
    result = measure(Bench(Target("cuda")), device, Sizes())
    show(result)
    console.note(f"saved as {save(result, f'gpu_micro-{device.slug}')}")


if __name__ == "__main__":
    main()
