"""Compilation without LLVM's optimizations, which take most of the time, for tests of earlier stages."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from mlc_compiler.codegen import native, workers
from mlc_compiler.codegen.llvm_worker import Reply, Request


class _Unoptimized:
    """The shared pool of LLVM workers, with optimization level 0 for all requests."""

    def submit(self, request: Request) -> Future[Reply]:
        return workers.shared().submit(replace(request, level=0))


@contextmanager
def without_llvm_optimizations() -> Iterator[None]:
    """Context manager: compilations run all passes of the compiler, and none of LLVM's."""
    with mock.patch.object(native, "shared", _Unoptimized):
        yield
