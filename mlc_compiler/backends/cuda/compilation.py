"""Compilation for NVIDIA GPUs: the passes, and the code of a library. ``CudaBackend`` imports it on first use."""

from __future__ import annotations

from ...codegen.host.contexts import HostRuntime
from ...codegen.host.module import HostModule
from ...ir.module import IRModule
from ...optimization import Optimization
from ...passes.fuse_ops import Gates, Prologues
from ...target import Target
from ..base import Lowering
from .images import compile_kernels
from .math import ON_GPU
from .matmul.few_rows import STAGED_BYTES
from .operators import kernels_of
from .passes.bind_threads import BindThreads
from .passes.place_syncs import PlaceSyncs
from .passes.split_kernels import SplitKernels
from .passes.thread_reductions import ThreadReductions
from .passes.virtual_threads import VirtualThreads
from .runtime import CudaRuntime
from .schedules import CUDA_RULES, PLAIN_RULES

ON_TENSOR_CORES = frozenset({"float16", "bfloat16"})


def lowering(target: Target, optimization: Optimization) -> Lowering:
    return Lowering(
        operators=kernels_of(target) if optimization.schedules else {},
        prologues=Prologues(1, STAGED_BYTES, ON_TENSOR_CORES),
        gates=Gates(ON_TENSOR_CORES),
        rules=CUDA_RULES if optimization.schedules else PLAIN_RULES,
        loops=(VirtualThreads(), ThreadReductions(), BindThreads(), PlaceSyncs()),
        calls=(SplitKernels(pdl=target.has("sm_90")),),
        math=ON_GPU,
    )


def host_runtime(host: HostModule, mod: IRModule, target: Target) -> HostRuntime:
    code = compile_kernels(mod, target)
    runtime = CudaRuntime(host, mod, code.images, code.kernels)
    runtime.metadata = {"images": code.describe(target)}
    runtime.device_texts = {f"{target.cpu}.ptx": "\n".join(image.ptx for image in code.images)}
    return runtime
