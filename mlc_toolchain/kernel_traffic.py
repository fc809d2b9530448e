"""Memory traffic, bank conflicts and instructions of decode kernels at a model's real sizes, from a few blocks."""

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

MIDDLE = 2  # simulated blocks besides the first and the last
WEIGHT_UNIT = 512  # bytes of weights to which instruction counts refer


@dataclass(frozen=True)
class Traffic:
    """A launch of a kernel that reads weights. weight_bytes: bytes of the simulated blocks' share of the weights.

    fetched: bytes of weights that threads load. counts: statistics of the simulated blocks.
    """

    kernel: str
    blocks: int
    simulated: int
    weight_bytes: float
    fetched: int
    counts: Counts

    @property
    def fetched_per_weight_byte(self) -> float:
        """Bytes of weights loaded per byte of weights; 1 if each weight is loaded once."""
        return self.fetched / self.weight_bytes

    @property
    def prefetched_per_weight_byte(self) -> float:
        """Bytes prefetched per byte of weights, before the kernel waits for the preceding one; 1 for all weights."""
        return self.counts.prefetched_bytes / self.weight_bytes

    @property
    def instructions(self) -> float:
        """Warp instructions per ``WEIGHT_UNIT`` bytes of weights."""
        return self.counts.warp_instructions * WEIGHT_UNIT / self.weight_bytes

    @property
    def conflicts(self) -> float:
        """Extra shared memory passes due to bank conflicts, relative to the minimum."""
        return self.counts.bank_conflicts / max(self.counts.ideal_wavefronts, 1)


def decode_traffic(config: ModelConfig, scheme: Scheme, target: Target) -> list[Traffic]:
    """The kernels with weights of a decode step, in order, at the sizes of ``config`` with one layer.

    The first block, the last one and ``MIDDLE`` others of each launch run, with all weights zero. Raises MLCError for
    a model that cannot be compiled or simulated.
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
    """The indices of the first and the last block, and of some in between."""
    return (blocks * i // (MIDDLE + 1) - (i == MIDDLE + 1) for i in range(MIDDLE + 2))


def _zeros(func: Function) -> tuple[np.ndarray[Any, Any], ...]:
    """Zero weights for a lowered function, in its layouts; read-only, so that they are not copied."""
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
        """The traffic of a launch; None for a kernel without weight matrices."""
        arrays = [(p.name, a) for p, a in zip(func.params, args, strict=True) if isinstance(p, Buffer)]
        loaded = launched.counts.accessed
        read = [(n, a) for n, a in arrays if a.ctypes.data in self.weights and loaded[n] and max(a.shape) < a.size]
        if not read:
            return None
        share = launched.simulated / launched.blocks
        total = sum(a.nbytes for _, a in read) * share
        fetched = sum(loaded[n] for n, _ in read)
        return Traffic(launched.kernel, launched.blocks, launched.simulated, total, fetched, launched.counts)
