"""Attention kernels of GPUs: sequences without pages, and register usage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlc_compiler.backends.cuda.images import compile_kernels, find_assembler
from mlc_compiler.backends.cuda.machine import Gpu
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.target import Target
from mlc_toolchain.kernel_resources import kernel_resources
from tests.compiler.backends.cuda.operators.attention import HALF, sizes_of, symbolic
from tests.compiler.backends.cuda.operators.simulated import simulate
from tests.compiler.relax.check_op import graph_of
from tests.compiler.relax.paged import random_batch


@pytest.mark.parametrize("single_query", [False, True])
def test_sequences_without_pages_give_zeros(single_query: bool):
    batch = random_batch(sizes_of(**HALF))
    table = np.zeros((2, 0), np.int32)
    attrs = {"heads": 6, "scale": 0.3, "single_query": single_query, "symbolic": {0}}
    args = (batch.q, batch.k_pages, batch.v_pages, table, batch.token_seq, batch.token_pos, 1, [])
    assert not np.asarray(simulate("nn.paged_attention", *args, **attrs)).any()


LARGE = {"heads": 32, "kv_heads": 8, **HALF}


@pytest.mark.parametrize("size", [64, 128, 256])
@pytest.mark.parametrize("single_query", [False, True])
def test_registers_suffice(size: int, single_query: bool):
    check_registers({**LARGE, "key": size, "value": size}, {"heads": 32, "single_query": single_query})


@pytest.mark.parametrize("single_query", [False, True])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_registers_suffice_for_latent_attention(single_query: bool, arch: str):
    """Keys of 512 and 64 elements, as of DeepSeek-V2; 128 heads are several tiles."""
    attrs = {"heads": 128, "value_size": 512, "single_query": single_query}
    assert check_registers({**HALF, "heads": 128, "kv_heads": 1, "key": 576}, attrs, arch) > 64 << 10


def check_registers(sizes: dict[str, Any], attrs: dict[str, Any], arch: str = "sm_90a") -> int:
    """Assert that attention uses no local memory; returns the largest shared memory of a kernel, in bytes."""
    batch = random_batch(sizes_of(**sizes, spans=((0, 9),)))
    batch = replace(batch, v_pages=batch.k_pages) if "value_size" in attrs else batch
    attrs, target = {"scale": 0.1, **attrs}, Target(f"cuda:{arch}")
    graph = graph_of("nn.paged_attention", (*batch.args, 1, []), attrs, symbolic(batch))
    code = compile_kernels(run_passes(graph, (*entries(), *pipeline(target))), target)
    assemble = find_assembler()
    assert assemble is not None
    resources = assemble(code.images[0].ptx, arch).resources
    assert len(resources) == len(code.kernels) > 0
    assert all(r.stack_bytes == r.spill_bytes == 0 for r in resources.values())
    return max(r.shared_bytes for r in kernel_resources(code, Gpu.of(target)).values())
