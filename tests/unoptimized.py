"""Compilations without LLVM's optimizations, which take most of the time, for tests of what comes before them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from mlc_compiler.codegen import native, workers
from mlc_compiler.codegen.llvm_worker import Reply, Request


class _Unoptimized:
    """The shared pool of LLVM workers, whose requests have level 0."""

    def submit(self, request: Request) -> Future[Reply]:
        return workers.shared().submit(replace(request, level=0))


@contextmanager
def without_llvm_optimizations() -> Iterator[None]:
    """Compilations in this context have all passes of the compiler, and none of LLVM's."""
    with mock.patch.object(native, "shared", _Unoptimized):
        yield
