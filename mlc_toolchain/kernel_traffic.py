"""What decode kernels do at a model's real sizes: bytes fetched, bank conflicts, instructions; from a few blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mlc_compiler.backends import backend_of
from mlc_compiler.backends.cuda.images import llvm_modules
from mlc_compiler.backends.cuda.launches import Images, Kernel
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.interp import run_function
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.module import GlobalVar, IRModule
from mlc_compiler.ir.visitor import walk
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.relax.nodes import Function, TensorStructInfo, TupleStructInfo
from mlc_compiler.sim.counts import Counts
from mlc_compiler.sim.host_functions import Device, Launched
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import Buffer, PrimFunc
from mlc_toolchain.random_inputs import RandomInputs
from model_zoo.architecture import ModelConfig
from model_zoo.registry import export_model
from quantization.schemes import Scheme

MIDDLE = 2  # blocks besides the first and the last
WEIGHT_UNIT = 512  # bytes of weights, for counts of instructions


@dataclass(frozen=True)
class Traffic:
    """A launch of a kernel that reads weights. weight_bytes: of the simulated blocks' share of the weights.

    fetched: bytes of weights that threads load. counts: of the simulated blocks.
    """

    kernel: str
    blocks: int
    simulated: int
    weight_bytes: float
    fetched: int
    counts: Counts

    @property
    def fetched_per_weight_byte(self) -> float:
        """1 where each weight is loaded once."""
        return self.fetched / self.weight_bytes

    @property
    def prefetched_per_weight_byte(self) -> float:
        """1 where all weights are prefetched before the kernel waits for the kernel before it."""
        return self.counts.prefetched_bytes / self.weight_bytes

    @property
    def instructions(self) -> float:
        """Warp instructions for ``WEIGHT_UNIT`` bytes of weights."""
        return self.counts.warp_instructions * WEIGHT_UNIT / self.weight_bytes

    @property
    def conflicts(self) -> float:
        """Passes through the banks of shared memory beyond the ones needed, as a share of these."""
        return self.counts.bank_conflicts / max(self.counts.ideal_wavefronts, 1)


def decode_traffic(config: ModelConfig, scheme: Scheme, target: Target) -> list[Traffic]:
    """The kernels with weights of a decode step, in order, at the sizes of ``config`` with one layer.

    Of each launch the first block, the last one and ``MIDDLE`` others run, all weights being zero. Raises MLCError for
    what cannot be compiled or simulated.
    """
    dtype = backend_of(target).activation_dtype(scheme.model_dtype)
    exported = export_model(replace(config, num_hidden_layers=1), scheme, dtype)  # type: ignore[type-var]
    lowered = run_passes(exported.mod, pipeline(target))
    func = lowered["decode"]
    arguments = RandomInputs(exported, scheme).arguments(exported.mod["decode"])
    weights = _zeros(func)
    recorder = _Recorder(_device(lowered, func, target), {w.ctypes.data for w in weights})
    result = np.zeros((1, 1, config.vocab_size), np.float32)
    given = [arguments.get(p.name, weights) for p in func.params[:-1]]
    run_function(lowered, "decode", *given, result, kernels=recorder.run)
    return recorder.found


def _device(mod: IRModule, func: Function, target: Target) -> Device:
    """A device with the kernels that a graph function launches."""
    called = {n.name for b in func.bindings for n in walk(b.value) if isinstance(n, GlobalVar)}
    needed = {n: f for n, f in mod.of_type(PrimFunc).items() if n in called or n.rpartition("_kernel")[0] in called}
    kernels: dict[str, Kernel] = {}
    texts = assemble_modules(llvm_modules(IRModule(needed), target, kernels), target)
    return Device.of([Images(text, {}) for text in texts], _some)


def _some(blocks: int) -> Iterable[int]:
    """The first, the last, and some between."""
    return (blocks * i // (MIDDLE + 1) - (i == MIDDLE + 1) for i in range(MIDDLE + 2))


def _zeros(func: Function) -> tuple[np.ndarray[Any, Any], ...]:
    """The weights that a lowered function takes, in its layouts; read-only, so that no copy is made of them."""
    (table,) = (p.struct_info for p in func.params if isinstance(p.struct_info, TupleStructInfo))
    arrays = []
    for info in table.fields:
        assert isinstance(info, TensorStructInfo) and info.shape is not None
        array = np.zeros([int(s) for s in info.shape], dt.to_numpy(info.dtype))  # type: ignore[call-overload]
        array.flags.writeable = False
        arrays.append(array)
    return tuple(arrays)


@dataclass
class _Recorder:
    device: Device
    weights: set[int]
    found: list[Traffic] = field(default_factory=list)

    def run(self, func: PrimFunc, *args: Any) -> None:
        for launched in self.device.run(func, *args):
            traffic = self._traffic(launched, func, args)
            if traffic is not None:
                self.found.append(traffic)

    def _traffic(self, launched: Launched, func: PrimFunc, args: tuple[Any, ...]) -> Traffic | None:
        """None for a kernel without weights; a vector of a norm is none."""
        arrays = [(p.name, a) for p, a in zip(func.params, args, strict=True) if isinstance(p, Buffer)]
        loaded = launched.counts.accessed
        read = [(n, a) for n, a in arrays if a.ctypes.data in self.weights and loaded[n] and max(a.shape) < a.size]
        if not read:
            return None
        share = launched.simulated / launched.blocks
        total = sum(a.nbytes for _, a in read) * share
        fetched = sum(loaded[n] for n, _ in read)
        return Traffic(launched.kernel, launched.blocks, launched.simulated, total, fetched, launched.counts)
