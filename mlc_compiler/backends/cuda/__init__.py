"""NVIDIA GPUs: PTX from LLVM's NVPTX target, launched through the CUDA driver API."""

from __future__ import annotations

from collections.abc import Iterator

from ...codegen.host.contexts import HostRuntime
from ...codegen.host.module import HostModule
from ...ir.module import IRModule
from ...target import Target
from ..base import Backend, Lowering
from .images import compile_kernels
from .instructions import INSTRUCTIONS
from .machine import CUDA_KIND
from .math import ON_GPU
from .operators import kernels_of
from .passes.bind_threads import BindThreads
from .passes.place_syncs import PlaceSyncs
from .passes.split_kernels import SplitKernels
from .passes.thread_reductions import ThreadReductions
from .passes.virtual_threads import VirtualThreads
from .runtime import CudaRuntime
from .schedules import CUDA_RULES


class CudaBackend(Backend):
    """Each call of a graph function launches its kernels on a stream."""

    kind = CUDA_KIND
    instructions = INSTRUCTIONS

    def lowering(self, target: Target) -> Lowering:
        return Lowering(
            operators=kernels_of(target),
            prologue_rows=1,
            gated_dtypes=frozenset({"float16", "bfloat16"}),
            rules=CUDA_RULES,
            loops=(VirtualThreads(), ThreadReductions(), BindThreads(), PlaceSyncs()),
            calls=(SplitKernels(pdl=target.has("sm_90")),),
            math=ON_GPU,
        )

    def activation_dtype(self, model_dtype: str) -> str:
        return model_dtype  # tensor cores take float16 and bfloat16

    def host_target(self, target: Target) -> Target:
        return Target({"kind": "cpu", "mtriple": str(target.attrs["host"])})

    def emit_kernels(self, mod: IRModule, target: Target) -> Iterator[str]:
        return iter(())

    def host_runtime(self, host: HostModule, mod: IRModule, target: Target) -> HostRuntime:
        code = compile_kernels(mod, target)
        runtime = CudaRuntime(host, mod, code.images, code.kernels)
        runtime.metadata = {"images": code.describe(target)}
        runtime.device_texts = {f"{target.cpu}.ptx": "\n".join(image.ptx for image in code.images)}
        return runtime
