"""CPUs: x86-64 and AArch64, SIMD lanes, a team of worker threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...codegen.host.module import HostModule
from ...ir.module import IRModule
from ...optimization import Optimization
from ...target import Target
from ...tir.intrinsics import TensorIntrin
from ..base import Backend, Lowering
from .instructions import INSTRUCTIONS
from .kernels import emit_kernels
from .machine import CPU_KIND
from .operators import kernels_of
from .passes.bfloat16_matmuls import Bfloat16Matmuls
from .passes.channels_last import ChannelsLast
from .passes.fuse_attention import FuseAttention
from .passes.interleave_reductions import InterleaveReductions
from .passes.peel_guards import PeelGuards
from .passes.place_barriers import PlaceBarriers
from .passes.quantized_matmuls import QuantizedMatmuls
from .passes.vectorize_short_loops import VectorizeShortLoops
from .schedules import CPU_RULES
from .team import TeamRuntime


class CpuBackend(Backend):
    """A team of threads runs each graph function; kernels divide their parallel loops over the team."""

    kind = CPU_KIND

    @property
    def instructions(self) -> Sequence[TensorIntrin]:
        return INSTRUCTIONS

    def lowering(self, target: Target, optimization: Optimization) -> Lowering:
        scheduled = optimization.schedules
        narrow = scheduled and optimization.activation_bits == 8
        products = QuantizedMatmuls(target, optimization.activation_bits if scheduled else None)
        return Lowering(
            graph=(ChannelsLast(), FuseAttention()) if scheduled else (),
            operators=kernels_of(target, narrow) if scheduled else {},
            gates=products.gates,
            kernels=(products, *((Bfloat16Matmuls(target),) if narrow else ())),
            rules=CPU_RULES if scheduled else (),
            loops=(PeelGuards(), VectorizeShortLoops(target), InterleaveReductions(target)),
            calls=(PlaceBarriers(),),
        )

    def host_target(self, target: Target) -> Target:
        return target

    def emit_kernels(self, mod: IRModule, target: Target) -> Iterator[str]:
        return emit_kernels(mod, target)

    def host_runtime(self, host: HostModule, mod: IRModule, target: Target) -> TeamRuntime:
        return TeamRuntime(host, mod)
