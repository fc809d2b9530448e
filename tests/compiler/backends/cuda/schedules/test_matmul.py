"""Matmuls on tensor cores: the functions that the rule matches, and the instructions of the machine code."""

from __future__ import annotations

from itertools import product

import pytest

from mlc_compiler.backends.cuda.images import find_assembler, llvm_modules
from mlc_compiler.backends.cuda.matmul.tiles import LARGE, LARGE_UNPACKED, MEDIUM, SMALL
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.target import Target
from tests.compiler.backends.cuda.products import Case, lowered


@pytest.mark.parametrize(
    ("weight", "dtype"), [("NK", "float16"), ("KN", "bfloat16"), ("q4 NK", "float16"), ("q4 KN", "bfloat16")]
)
def test_nothing_is_in_local_memory(weight: str, dtype: str) -> None:
    target = Target("cuda:sm_80")
    mod = lowered(Case(64, 4096, 4096, weight, dtype).function(), target)
    texts = assemble_modules(llvm_modules(mod, target, {}), target)
    few_rows = 2 * (8 if weight.startswith("q4") else 2)  # two steps of a warp
    large = LARGE_UNPACKED if weight.startswith("q4") else LARGE
    products = {t: t.row_tiles * t.column_tiles * t.depth // 16 for t in (SMALL, MEDIUM, large)}
    unrolled = sum(count * (t.stages if weight.startswith("q4") else 1) for t, count in products.items())
    assert sum(text.count("mma.sync.aligned.m16n8k16") for text in texts) == unrolled + few_rows
    assert all(".local" not in text for text in texts)
    assemble = find_assembler()
    for text, arch in product(texts, ("sm_80", "sm_90", "sm_120")) if assemble is not None else ():
        resources = assemble(text, arch).resources
        assert all(r.stack_bytes == r.spill_bytes == 0 for r in resources.values()), resources


@pytest.mark.parametrize(("weight", "products"), [("NK", 8), ("q4 NK", 12)])
def test_hopper_multiplies_by_warpgroups(weight: str, products: int) -> None:
    """Two blocks with 256 threads and their stages fit into a multiprocessor."""
    target, kernels = Target("cuda:sm_90a"), {}
    mod = lowered(Case(64, 4096, 4096, weight).function(), target)
    texts = assemble_modules(llvm_modules(mod, target, kernels), target)
    assert sum(text.count("wgmma.mma_async.sync.aligned.m64n128k16") for text in texts) == products
    assert all(".local" not in text for text in texts)
    assert 2 * max(k.launch.shared_bytes for k in kernels.values()) <= 227 << 10
    assemble = find_assembler()
    for text in texts if assemble is not None else ():
        for name, resources in assemble(text, "sm_90a").resources.items():
            assert resources.stack_bytes == resources.spill_bytes == 0
            assert resources.registers <= 128 or kernels[name].launch.block[0] == 128
