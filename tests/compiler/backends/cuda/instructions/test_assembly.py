"""PTX of every instruction: its mnemonics, and that ptxas accepts it for the oldest GPU that has it and newer ones."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

from mlc_compiler.backends.cuda.instructions import INSTRUCTIONS
from mlc_compiler.tir.intrinsics import TensorIntrin
from tests.compiler.backends.cuda.instructions.kernels import ROWS, assemble, new_module, row_kernel, to_ptx

NEWER = {"sm_70": ("sm_75", "sm_90"), "sm_75": ("sm_75",), "sm_80": ("sm_80", "sm_120"), "sm_89": ("sm_89", "sm_120")}
MNEMONICS = {
    "shfl.xor": "shfl.sync.bfly.b32",
    "shfl.down": "shfl.sync.down.b32",
    "shfl.up": "shfl.sync.up.b32",
    "shfl.idx": "shfl.sync.idx.b32",
    "redux.add": "redux.sync.add.[su]32",
    "redux.min.u32": "redux.sync.min.u32",
    "vote": "vote.sync.ballot.b32",
    "ldmatrix.x4.trans": r"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    "ldmatrix.x2.s8": r"ldmatrix.sync.aligned.m8n8.x2.shared.b16",
    "mma.m16n8k16.f32.f16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.m16n8k16.f16.f16": "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "mma.m16n8k16.f32.bf16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.m16n8k32.s32.s8": "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "mma.m16n8k32.f32.e4m3": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "wmma.load_a.row": "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    "wmma.load_b.row": "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    "wmma.mma": "mma.sync.aligned.m16n8k(16|32).row.col(?s:.*)mma.sync",
    "wmma.store": r"st.(shared|global).*",
    "cp_async.4": "cp.async.ca.shared.global .*, 4",
    "cp_async.16": "cp.async.cg.shared.global .*, 16",
    "cp_async.commit": "cp.async.commit_group",
    "cp_async.wait": "cp.async.wait_group",
    "bulk_copy": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
    "tensor_copy": "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
    "mbarrier.wait": "mbarrier.try_wait.parity.shared.b64",
    "mbarrier.arrive_expect_tx": "mbarrier.arrive.expect_tx.shared.b64",
    "mbarrier.init": "mbarrier.init.shared.b64",
    "counter.wait": r"ld.relaxed.sys.global.b32(?s:.*)bra(?s:.*)fence.acq_rel.gpu",
    "fence.release": "fence.acq_rel.gpu",
    "fence.proxy_async": "fence.proxy.async.shared::cta",
    "barrier.sync": "bar(rier)?.sync",
    "barrier.arrive": "bar(rier)?.arrive",
    "prefetch": "cp.async.bulk.prefetch.L2.global",
    "griddep.wait": "griddepcontrol.wait",
    "griddep.launch": "griddepcontrol.launch_dependents",
    "dp4a.u8.s8": "dp4a.u32.s32",
    "ex2": "ex2.approx.ftz.f32",
    "lg2": "lg2.approx.ftz.f32",
    "rcp": "rcp.approx.ftz.f32",
    "tanh": "tanh.approx.f32",
    "cvt.f16x2.f32": "cvt.rn.f16x2.f32",
    "cvt.bf16x2": "cvt.rn.bf16x2.f32",
    "cvt.f16x2.e4m3": "cvt.rn.f16x2.e4m3x2",
    "cvt.f32x4.s8": "prmt.b32",
    "cvt.f32x4.e4m3": "cvt.rn.f16x2.e4m3x2",
    "cvt.e4m3x2": "cvt.rn.satfinite.e4m3x2.f16x2",
    "atom.inc": "atom.global.inc.u32",
    "red.release": r"fence.acq_rel.gpu;\s+(atom|red).global.add",
}
"""The beginning of a row's name, after ``cuda.``, and what its PTX contains."""


def by_lowest_gpu() -> dict[str, list[TensorIntrin]]:
    rows = sorted(INSTRUCTIONS, key=lambda row: row.requires)
    return {sm: list(group) for sm, group in groupby(rows, key=lambda row: row.requires)}


@pytest.mark.parametrize("sm", by_lowest_gpu())
def test_ptxas_accepts_every_instruction(sm: str, tmp_path: Path) -> None:
    module = new_module()
    rows = by_lowest_gpu()[sm]
    for i, row in enumerate(rows):
        row_kernel(row, module, f"kernel{i}")
    ptx = to_ptx(module, sm)
    bodies = ptx.split(".visible .entry kernel")[1:]
    assert len(bodies) == len(rows)
    for row, body in zip(rows, bodies, strict=True):
        name = row.name.removeprefix("cuda.")
        for start, mnemonic in MNEMONICS.items():
            if name.startswith(start):
                assert re.search(mnemonic, body), f"{row.name}: no {mnemonic} in {body}"
    assert ".local" not in ptx
    for newer in NEWER.get(sm, (sm,)):
        assemble(ptx, newer, tmp_path)


def test_the_mnemonics_are_those_of_rows() -> None:
    for start in MNEMONICS:
        assert any(name.startswith(f"cuda.{start}") for name in ROWS), start
