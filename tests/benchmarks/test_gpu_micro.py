"""The micro-benchmarks of a GPU: machine code without local memory, inner loops as designed, results."""

from __future__ import annotations

import re
from collections import Counter

import micro_kernels as kernels
import numpy as np
import pytest
from cuda_device import Device
from measuring import Bench
from micro import Sizes, _require, expected_sums, line, measure
from micro_kernels import grid_barrier

from mlc_compiler import emit_ptx
from mlc_compiler.backends.cuda.images import find_assembler
from mlc_compiler.script import T
from mlc_compiler.sim import Memory, parse_ptx, run
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from mlc_errors import MLCError

FUNCTIONS = {
    "read": kernels.read(264, 256, 100),
    "chain": kernels.chain(),
    "overlapped_chain": kernels.overlapped_chain(),
    "barriers": kernels.barriers(132, 256),
    "multiply": kernels.multiply(132, 8, 4),
    "multiply_by_warpgroups": kernels.multiply_by_warpgroups(132, 2, 256),
}

ALL = ("sm_80", "sm_90a", "sm_120")
ONLY = {"overlapped_chain": ALL[1:], "multiply_by_warpgroups": ("sm_90a",)}
ARCHITECTURES = {name: ONLY.get(name, ALL) for name in FUNCTIONS}


def inner_loop(ptx: str) -> Counter[str]:
    """Count opcodes (with vector sizes) of the last loop: from its label to the backward branch to it."""
    lines = [text.strip() for text in ptx.splitlines()]
    labels = {text[:-1]: i for i, text in enumerate(lines) if re.fullmatch(r"\$\w+:", text)}
    jumps = [(labels[m[1]], i) for i, text in enumerate(lines) if (m := re.search(r"bra(?:\.uni)?\s+(\$\w+);", text))]
    start, end = max((target, i) for target, i in jumps if target < i)
    return Counter(m[0] for text in lines[start:end] if (m := re.match(r"[a-z]\w*(\.\w+)*", text)))


@pytest.mark.parametrize(("name", "arch"), [(n, a) for n, archs in ARCHITECTURES.items() for a in archs])
def test_machine_code_without_local_memory(name: str, arch: str) -> None:
    ptx = emit_ptx(FUNCTIONS[name], f"cuda:{arch}")
    assemble = find_assembler()
    assert assemble is not None
    assert ".local" not in ptx
    resources = assemble(ptx, arch).resources.values()
    assert resources
    assert all(r.stack_bytes == r.spill_bytes == 0 for r in resources)
    assert all((r.shared_bytes > 0) == (name == "multiply_by_warpgroups") for r in resources)


def test_the_inner_loop_of_reads() -> None:
    loop = inner_loop(emit_ptx(FUNCTIONS["read"], "cuda:sm_80"))
    assert loop["ld.global.v4.b32"] == kernels.LOADS
    assert loop["xor.b32"] == 4 * kernels.LOADS
    assert sum(loop.values()) <= 5 * kernels.LOADS + 4  # addresses and the branch


@pytest.mark.parametrize("accumulators", [1, 2, 4, 8])
def test_the_inner_loop_of_products(accumulators: int) -> None:
    ptx = emit_ptx(kernels.multiply(132, 4, accumulators), "cuda:sm_80")
    loop = inner_loop(ptx)
    assert loop["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] == kernels.MMA_IN_LOOP
    assert sum(loop.values()) <= kernels.MMA_IN_LOOP + 3


@pytest.mark.parametrize("columns", [64, 128, 256])
def test_the_inner_loop_of_products_of_warpgroups(columns: int) -> None:
    """The sums stay in the registers that the instructions add to."""
    ptx = emit_ptx(kernels.multiply_by_warpgroups(132, 2, columns), "cuda:sm_90a")
    assert ptx.count(f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16") == 4
    others = {f"wgmma.{name}.sync.aligned": 1 for name in ("fence", "commit_group", "wait_group")}
    assert inner_loop(ptx) == {**others, "add.s64": 1, "setp.ne.b64": 1}


def test_a_barrier_is_one_addition_and_one_load_in_turns() -> None:
    ptx = emit_ptx(FUNCTIONS["barriers"], "cuda:sm_90a").split(".visible .entry")[-1]
    counts = {
        name: len(re.findall(rf"^\s*{name}", ptx, re.MULTILINE)) for name in ("bar.sync", "fence", "atom", "ld.relaxed")
    }
    assert counts == {"bar.sync": 2, "fence": 2, "atom": 1, "ld.relaxed": 1}


def ring(blocks: int, rounds: int) -> PrimFunc:
    """Each block passes the value of its successor, plus one, to its predecessor, with a barrier after each round."""

    @T.prim_func
    def main(slots: T.Buffer((2, blocks), "uint32"), counter: T.Buffer((1,), "uint32")):
        T.func_attr({"cuda.explicit_sync": True})
        for block in T.thread_binding(blocks, thread="blockIdx.x"):
            for thread in T.thread_binding(64, thread="threadIdx.x"):
                one = T.decl_buffer((1,), "uint32", scope="local")
                one[0] = T.uint32(1)
                for i in T.serial(rounds):
                    if thread == 40:
                        slots[(i + 1) % 2, block] = slots[i % 2, (block + 1) % blocks] + T.uint32(1)
                    grid_barrier(counter, one, thread, (i + 1) * blocks)

    return main


def test_what_blocks_write_before_a_barrier_is_seen_after_it() -> None:
    blocks, rounds = 7, 5
    (kernel,) = parse_ptx(emit_ptx(ring(blocks, rounds), "cuda:sm_80")).kernels.values()
    memory = Memory()
    first = np.stack([np.arange(blocks), np.zeros(blocks)]).astype(np.uint32)
    slots, counter = memory.allocate(first), memory.allocate(np.zeros(1, np.uint32))
    run(kernel, (blocks,), (64,), [slots, counter], memory, races=False, cooperative=True)  # the grid is ordered by it
    found = memory.view(slots, np.uint32, (2, blocks))[rounds % 2]
    np.testing.assert_array_equal(found, (np.arange(blocks) + rounds) % blocks + rounds)


def test_fragments_of_products() -> None:
    """``left`` has one 1 in row 9, column 5 (lane 6, register pair 1): the product is row 5 of ``right`` in row 9."""
    left, right = np.zeros((32, 8), np.float16), np.zeros((32, 4), np.float16)
    left[6, 3] = 1
    right[:, 1] = np.arange(32)  # element 1 of lane 4 * n + q: row 2 q + 1, column n
    found = expected_sums(left, right, 1)
    expected = np.zeros((32, 4), np.float32)
    for lane in range(4, 8):
        columns = lane % 4 * 2 + np.arange(2)
        expected[lane, 2:] = kernels.MMA_IN_LOOP * (4 * columns + 2)
    np.testing.assert_array_equal(found, expected)


def test_a_line_through_times() -> None:
    assert line(lambda n: 5.0 + 0.25 * n, (10, 100, 1000)) == (0.25, 5.0)


@pytest.mark.parametrize(("arch", "overlaps"), [("sm_80", False), ("sm_90a", True)])
def test_measurements_on_a_simulated_gpu(arch: str, overlaps: bool) -> None:
    """Every result is checked before its time counts; the times themselves mean nothing here."""
    device = Device("simulated", 90, 3, 1e9, 1e9, 512, 1 << 20, 13000)
    sizes = Sizes(3 * 2 * 32 * 64 * 2, (1, 2), 32, (2, 5), (1, 3), (2,), (1, 4), (1, 3), (2,), (64, 128))
    with SimulatedDriver(arch) as driver:
        found = measure(Bench(Target(f"cuda:{arch}"), driver.install, repeat=1, min_repeat_ms=0.0), device, sizes)
        assert driver.fault is None
        assert driver.calls["cuGraphInstantiateWithFlags"] > 0
        assert any(driver.programmatic.values()) is overlaps
    assert [r.blocks for r in found.read] == [1, 2]
    assert all(r.share == r.bytes_per_s / 128e9 for r in found.read)
    assert [(p.warps, p.accumulators) for p in found.products] == [(2, 1), (2, 4)]
    assert (found.overlapped_launch_seconds is not None) is overlaps
    assert ("programmatic dependent launch" in found.not_measured) is not overlaps
    measured = [(p.warpgroups, p.columns) for p in found.warpgroup_products]
    if arch == "sm_90a":
        assert measured == [(2, 64), (2, 128)] and "wgmma" not in found.not_measured
    else:
        assert measured == [] and found.not_measured["wgmma"] == "not available: sm_80 does not have it"


def test_a_wrong_result_is_no_measurement() -> None:
    with pytest.raises(MLCError, match="barriers: the result is 3; expected 4"):
        _require("barriers", 3, 4)


def test_limits_of_an_h100_and_an_unknown_gpu() -> None:
    h100 = Device("NVIDIA H100 80GB HBM3", 90, 132, 1.83e9, 2.619e9, 5120, 50 << 20, 13000)
    assert h100.read_bytes_per_s == pytest.approx(3352e9, rel=1e-3)
    assert h100.mma_flop_per_s == pytest.approx(989.4e12, rel=1e-3)
    assert h100.slug == "nvidia-h100-80gb-hbm3"
    assert Device("new", 130, 1, 1e9, 1e9, 64, 0, 13000).mma_flop_per_s is None
