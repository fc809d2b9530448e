"""Garbage collection is paused while a module is compiled, and restored afterwards."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from mlc_compiler.driver import build_library
from mlc_compiler.ir.module import IRModule
from mlc_compiler.target import Target


@pytest.mark.parametrize("enabled", [True, False])
def test_collection_is_paused_for_a_build(enabled: bool, tmp_path: Path):
    during: list[bool] = []
    (gc.enable if enabled else gc.disable)()
    try:
        build_library(
            IRModule({}), Target("cpu"), tmp_path / "lib.so", progress=lambda _: during.append(gc.isenabled())
        )
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
    assert during and not any(during)
