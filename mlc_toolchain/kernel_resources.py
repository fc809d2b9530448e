"""Resource usage of kernels: registers, shared memory, stack, occupancy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mlc_compiler.backends.cuda.images import DeviceCode, Resources, find_assembler
from mlc_compiler.backends.cuda.launches import Launch
from mlc_compiler.backends.cuda.machine import WARP, Gpu, resident_blocks
from mlc_errors import ResourceError


@dataclass(frozen=True)
class KernelResources:
    """Resources of a kernel: registers and stack bytes per thread, shared bytes per block.

    occupancy: resident threads as a share of a multiprocessor's maximum. Spilled bytes count as stack.
    """

    registers: int
    stack_bytes: int
    shared_bytes: int
    occupancy: float


def kernel_resources(code: DeviceCode, gpu: Gpu) -> Mapping[str, KernelResources]:
    """The resources of each kernel of ``code``, assembled for ``gpu``. Raises ResourceError without an assembler."""
    assemble = find_assembler()
    if assemble is None:
        raise ResourceError("there is no assembler for PTX", hint="pip install nvidia-cuda-nvcc==13.0.*")
    found: dict[str, Resources] = {}
    for image in code.images:
        found |= assemble(image.ptx, gpu.arch).resources
    return {name: _resources(found[name], kernel.launch, gpu) for name, kernel in code.kernels.items()}


def _resources(found: Resources, launch: Launch, gpu: Gpu) -> KernelResources:
    shared = max(found.shared_bytes, launch.shared_bytes)
    stack = found.stack_bytes + found.spill_bytes
    return KernelResources(found.registers, stack, shared, occupancy(found.registers, shared, launch.block, gpu))


def occupancy(registers: int, shared_bytes: int, block: Sequence[int], gpu: Gpu) -> float:
    """Resident threads as a share of a multiprocessor's maximum."""
    threads = -(-prod(block) // WARP) * WARP
    return resident_blocks(registers, shared_bytes, threads, gpu) * threads / gpu.threads
