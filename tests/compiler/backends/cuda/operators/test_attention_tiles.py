"""Attention of tiles of queries on a GPU, in float32 and on tensor cores, against numpy."""

from __future__ import annotations

import pytest

from tests.compiler.backends.cuda.operators.attention import ON_TENSOR_CORES, OPTIONS, check, sizes_of


@pytest.mark.parametrize("option", [*OPTIONS, *ON_TENSOR_CORES])
def test_tiles(option: str):
    sizes, optional, attrs = {**OPTIONS, **ON_TENSOR_CORES}[option]
    check(sizes_of(**sizes), optional, **attrs)
