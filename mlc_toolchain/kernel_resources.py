"""Resource usage of kernels: registers, shared memory, stack, occupancy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mlc_compiler.backends.cuda.images import DeviceCode, Resources, find_assembler
from mlc_compiler.backends.cuda.launches import Launch
from mlc_compiler.backends.cuda.machine import KIB, REGISTERS_PER_MULTIPROCESSOR, WARP, Gpu
from mlc_errors import ResourceError

REGISTERS_OF_A_WARP = 256  # allocation granularity
BLOCKS_PER_MULTIPROCESSOR = 32
RESERVED_SHARED_BYTES = KIB  # per block, reserved by the system


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
    """Resident threads as a share of a multiprocessor's maximum (CUDA Best Practices Guide, 11.1)."""
    warps = -(-prod(block) // WARP)
    of_a_warp = -(-registers * WARP // REGISTERS_OF_A_WARP) * REGISTERS_OF_A_WARP
    by_registers = REGISTERS_PER_MULTIPROCESSOR // max(of_a_warp * warps, 1)
    by_shared = (gpu.shared_bytes + RESERVED_SHARED_BYTES) // (shared_bytes + RESERVED_SHARED_BYTES)
    by_threads = gpu.threads // (warps * WARP)
    blocks = min(by_registers, by_shared, by_threads, BLOCKS_PER_MULTIPROCESSOR)
    return blocks * warps * WARP / gpu.threads
