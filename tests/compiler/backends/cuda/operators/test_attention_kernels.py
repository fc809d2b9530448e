"""Attention kernels of GPUs: without pages, and the registers that they need."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.backends.cuda.images import compile_kernels, find_assembler
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.target import Target
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
    batch = random_batch(sizes_of(**LARGE, key=size, value=size, spans=((0, 9),)))
    attrs = {"heads": 32, "scale": 0.1, "single_query": single_query}
    target = Target("cuda:sm_90a")
    graph = graph_of("nn.paged_attention", (*batch.args, 1, []), attrs, symbolic(batch))
    code = compile_kernels(run_passes(graph, (*entries(), *pipeline(target))), target)
    assemble = find_assembler()
    assert assemble is not None
    resources = assemble(code.images[0].ptx, "sm_90a").resources
    assert len(resources) == len(code.kernels) > 0
    assert all(r.stack_bytes == r.spill_bytes == 0 for r in resources.values())
