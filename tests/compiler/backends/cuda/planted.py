"""Faults planted in kernels of the compiler, and three tools that may detect them: simt-to-loops, the simulator of
kernels, and the simulated driver.

Kernels are edited as text: TVMScript before they are split from their host functions, TVMScript of the host
functions, or PTX. Each tool gives a verdict of one word.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mlc_compiler.backends.cuda.images import llvm_modules
from mlc_compiler.backends.cuda.launches import Images, Kernel
from mlc_compiler.backends.cuda.passes.place_syncs import PlaceSyncs
from mlc_compiler.backends.cuda.passes.split_kernels import KERNEL
from mlc_compiler.backends.cuda.runtime import CudaRuntime
from mlc_compiler.codegen.emit import emit_host
from mlc_compiler.codegen.host.module import HostModule, new_module
from mlc_compiler.codegen.link import link_shared
from mlc_compiler.codegen.native import assemble_modules, compile_modules
from mlc_compiler.interp.evaluate import evaluate
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.verify import Verify
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.script import parse, script
from mlc_compiler.sim import SimulationError
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_compiler.sim.host_functions import Device, scratch
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from mlc_errors import MLCError
from mlc_runtime.library import Library
from tests.compiler.backends.cuda.races import Race, run
from tests.compiler.backends.cuda.scheduled import kernels

TARGET = Target("cuda:sm_80")
CPU = Target("cpu")
WORDS = {
    "data race": "race",
    "out of bounds": "bounds",
    "uninitialized": "uninitialized",
    "missing cp.async wait": "wait",
    "misaligned": "alignment",
    "not written": "unwritten",
    "member mask": "mask",
    "has not been waited for": "early",
    "does not end": "endless",
}
Edit = Callable[[str], str]


def replacing(pattern: str, new: str, count: int = 0) -> Edit:
    """An edit that replaces ``count`` matches of a regular expression (0: all); there must be a match."""

    def edit(text: str) -> str:
        changed, times = re.subn(pattern, new, text, count=count)
        assert times, f"{pattern!r} is not in the text"
        return changed

    return edit


@dataclass(frozen=True)
class Subject:
    """A tensor function to plant faults in; its last parameter is the result. operands, expected: of one call."""

    func: PrimFunc
    operands: tuple[np.ndarray, ...]
    expected: np.ndarray
    tolerance: float
    target: Target = TARGET

    @cached_property
    def text(self) -> str:
        """The kernels as TVMScript."""
        return script(kernels(self.func, self.target))

    def verdict(self, result: np.ndarray) -> str:
        """Return ``missed`` if the result is the expected one, ``result`` otherwise."""
        a, b = result.astype(np.float64), self.expected.astype(np.float64)
        return "missed" if np.allclose(a, b, rtol=self.tolerance, atol=self.tolerance) else "result"

    def arrays(self) -> tuple[np.ndarray, ...]:
        return (*map(np.array, self.operands), np.full_like(self.expected, np.nan))


@dataclass(frozen=True)
class Fault:
    """Edits of a subject: of its kernels, its host function, its PTX.

    native: whether native code may run it; false for out-of-bounds accesses, which would end the process.
    """

    subject: Subject
    kernels: Edit = str
    host: Edit = str
    ptx: Edit = str
    native: bool = True

    def by_loops(self) -> str:
        """The verdict of simt-to-loops in two orders of threads; ``-`` if the fault is not in what it runs.

        ``result``: the result is wrong or depends on the order.
        """
        if self.kernels is str or not self.native:
            return "-"
        try:
            return self.subject.verdict(run(_parsed(self._kernels()), *self.subject.arrays())[-1])
        except Race:
            return "result"
        except MLCError:
            return "refused"

    def by_simulator(self) -> str:
        """The verdict of the simulator, kernel by kernel."""
        arrays = self.subject.arrays()
        try:
            Device.of(self.images).run(self._host_function, *arrays, *self._scratch())
        except SimulationError as error:
            return _word(error)
        return self.subject.verdict(arrays[-1])

    def _scratch(self) -> list[np.ndarray]:
        buffers = scratch(self._host_function)
        return [np.zeros([evaluate(n, {}) for n in b.shape], dt.to_numpy(b.dtype)) for b in buffers]

    def by_driver(self, folder: Path) -> str:
        """The verdict of a call of the library on a simulated driver."""
        library = self._library(folder / "lib.so")
        arrays = self.subject.arrays()
        with SimulatedDriver(self.subject.target.cpu) as driver:
            driver.install(library)
            try:
                library["main"](*arrays, *self._scratch())
            except RuntimeError:
                assert driver.fault is not None
                return _word(driver.fault)
            finally:
                with suppress(RuntimeError):  # repeats the fault
                    library.context.close()
        return self.subject.verdict(arrays[-1])

    def _kernels(self) -> str:
        return self.kernels(self.subject.text)

    @cached_property
    def lowered(self) -> IRModule:
        """The edited module: a graph function, a host function, kernels. No barriers are inserted beyond those in the
        text."""
        mod = _parsed(self._kernels())
        steps = [s for s in (*entries(), *pipeline(self.subject.target)) if not isinstance(s, Verify | PlaceSyncs)]
        split = run_passes(mod.updated({"main": mod["main"].with_attr("global_symbol", "main")}), steps)
        return split if self.host is str else _parsed(self.host(script(split)))

    @cached_property
    def table(self) -> dict[str, Kernel]:
        """The kernels by name, filled by ``images``."""
        return {}

    @cached_property
    def images(self) -> list[Images]:
        target = self.subject.target
        texts = assemble_modules(llvm_modules(self.lowered, target, self.table), target)
        return [Images(self.ptx(text), {}) for text in texts]

    @cached_property
    def _host_function(self) -> PrimFunc:
        (func,) = (f for f in self.lowered.of_type(PrimFunc).values() if KERNEL not in f.attrs)
        return func

    def _library(self, path: Path) -> Library:
        images = self.images
        runtime = CudaRuntime(HostModule(new_module(CPU), CPU), self.lowered, images, self.table)
        text = emit_host(self.lowered, runtime, self.subject.target, {})
        link_shared(compile_modules([text], CPU).objects, path, CPU)
        return Library(path)


def _parsed(text: str) -> IRModule:
    parsed = parse(text)
    assert isinstance(parsed, IRModule)
    return parsed


def _word(error: SimulationError) -> str:
    return next((word for part, word in WORDS.items() if part in error.message), error.message)
