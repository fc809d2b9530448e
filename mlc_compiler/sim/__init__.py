"""A PTX simulator in numpy, for checking GPU kernels without a GPU.

``program = parse_ptx(text)``, ``run(program.kernels[name], grid, block, args, memory)``.
"""

from __future__ import annotations

from mlc_compiler.sim import (  # noqa: F401  (their instructions become known by their import)
    async_copy,
    atomics,
    barriers,
    control,
    conversions,
    dependent_launch,
    floats,
    integers,
    loads,
    matrix,
    mbarrier,
    moves,
    warp,
    wgmma,
)
from mlc_compiler.sim.counts import Counts
from mlc_compiler.sim.errors import SimulationError
from mlc_compiler.sim.machine import run
from mlc_compiler.sim.memory import Memory
from mlc_compiler.sim.parser import parse_ptx
from mlc_compiler.sim.program import Kernel, Program
from mlc_compiler.sim.tensor_map import TensorMap, encode_tensor_map

__all__ = [
    "Counts",
    "Kernel",
    "Memory",
    "Program",
    "SimulationError",
    "TensorMap",
    "encode_tensor_map",
    "parse_ptx",
    "run",
]
