"""NVIDIA GPUs: PTX from LLVM's NVPTX target, launched through the CUDA driver API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from ...codegen.host.contexts import HostRuntime
from ...codegen.host.module import HostModule
from ...ir.module import IRModule
from ...optimization import Optimization
from ...target import Target
from ...tir.intrinsics import TensorIntrin
from ..base import Backend, Lowering
from .machine import CUDA_KIND


class CudaBackend(Backend):
    """Each call of a graph function launches its kernels on a stream.

    The modules for compilation are imported on first use, so that programs for CPUs do not load them.
    """

    kind = CUDA_KIND

    @property
    def instructions(self) -> Sequence[TensorIntrin]:
        rows: Sequence[TensorIntrin] = import_module(".instructions", __package__).INSTRUCTIONS
        return rows

    @property
    def _compilation(self) -> Any:
        return import_module(".compilation", __package__)

    def lowering(self, target: Target, optimization: Optimization) -> Lowering:
        found: Lowering = self._compilation.lowering(target, optimization)
        return found

    def activation_dtype(self, model_dtype: str) -> str:
        return model_dtype  # tensor cores take float16 and bfloat16

    def host_target(self, target: Target) -> Target:
        return Target({"kind": "cpu", "mtriple": str(target.attrs["host"])})

    def emit_kernels(self, mod: IRModule, target: Target) -> Iterator[str]:
        return iter(())

    def host_runtime(self, host: HostModule, mod: IRModule, target: Target) -> HostRuntime:
        runtime: HostRuntime = self._compilation.host_runtime(host, mod, target)
        return runtime
