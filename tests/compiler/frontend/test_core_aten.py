"""How much of PyTorch's core ATen operator set the importer covers, as docs/importing.md says."""

from __future__ import annotations

from pathlib import Path

import torch

from mlc_compiler.frontend.torch.aten import row_of

REFUSED = {
    "gradients": """_adaptive_avg_pool2d_backward avg_pool2d_backward convolution_backward embedding_dense_backward
        max_pool2d_with_indices_backward native_group_norm_backward native_layer_norm_backward""",
    "training": "_native_batch_norm_legit.default",
    "random numbers": "rand randn randperm",
    "shapes or numbers that depend on elements": "nonzero _local_scalar_dense",
    "complex numbers": "_fft_c2r _fft_r2c",
    "strides of storage": "sym_is_contiguous sym_storage_offset sym_stride.int",
}


def core() -> list[torch._ops.OpOverload]:
    """The operators of the core set: https://docs.pytorch.org/docs/stable/torch.compiler_ir.html."""
    packets = (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten))
    overloads = [getattr(p, o) for p in packets if isinstance(p, torch._ops.OpOverloadPacket) for o in p.overloads()]
    return [op for op in overloads if torch.Tag.core in op.tags]


def test_core_operators_have_rows_or_are_refused():
    table = torch.export.default_decompositions()
    refused = {name for names in REFUSED.values() for name in names.split()}
    rows = [op for op in core() if row_of(str(op)) is not None]
    decomposed = [op for op in core() if op not in rows and op in table and not _is_refused(op, refused)]
    others = [op for op in core() if op not in rows and op not in decomposed]
    assert [str(op) for op in others if not _is_refused(op, refused)] == []
    document = Path(__file__).parents[3].joinpath("docs", "importing.md").read_text()
    text = f"Of the {len(core())} operators, {len(rows)} have a row and {len(decomposed)} are decomposed;"
    assert text in " ".join(document.split())


def _is_refused(op: torch._ops.OpOverload, refused: set[str]) -> bool:
    name = str(op).removeprefix("aten.")
    return name in refused or name.removesuffix(".default") in refused
