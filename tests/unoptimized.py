"""Compilation without LLVM's optimizations, which take most of the time, for tests of earlier stages."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from mlc_compiler.codegen import native, workers
from mlc_compiler.codegen.llvm_worker import Reply, Request

OPTIMIZED = (
    "benchmarks",
    "compiler/backends/cpu/test_aarch64.py",
    "compiler/backends/cpu/test_quantized_native.py",
    "compiler/backends/cpu/test_team.py",
    "compiler/codegen",
    "compiler/fuzz",
    "compiler/schedules",
    "compiler/test_pipeline.py",
    "compiler/tuning",
    "e2e/test_smollm2.py",
    "e2e/test_smollm2_as_loops.py",
    "e2e/test_tiny_models.py",
    "quantization",
)
"""Folders and files under ``tests/`` whose tests compile as users do."""


class _Unoptimized:
    """The shared pool of LLVM workers, with optimization level 0 for CPUs; the simulator runs optimized PTX."""

    def submit(self, request: Request) -> Future[Reply]:
        is_gpu = request.triple.startswith("nvptx")
        return workers.shared().submit(request if is_gpu else replace(request, level=0))


def is_optimized(path: Path) -> bool:
    """Whether a test file, or a folder of it, is in ``OPTIMIZED``."""
    relative = path.relative_to(Path(__file__).parent)
    return any(relative.is_relative_to(each) for each in OPTIMIZED)


@contextmanager
def without_llvm_optimizations() -> Iterator[None]:
    """Context manager: compilations for CPUs run all passes of the compiler, and none of LLVM's."""
    with mock.patch.object(native, "shared", _Unoptimized):
        yield


@contextmanager
def with_llvm_optimizations() -> Iterator[None]:
    """Context manager: compilations are those of users, also inside of ``without_llvm_optimizations``."""
    with mock.patch.object(native, "shared", workers.shared):
        yield
