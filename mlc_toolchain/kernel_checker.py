"""Run tensor functions in the PTX simulator, compare them with a reference, and record statistics of each kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlc_compiler.ir.module import GlobalVar, IRModule
from mlc_compiler.ir.visitor import walk
from mlc_compiler.relax.nodes import Function
from mlc_compiler.sim.counts import Counts
from mlc_compiler.sim.errors import SimulationError
from mlc_compiler.sim.host_functions import Device, Launched, scratch
from mlc_compiler.tir.nodes import PrimFunc
from mlc_toolchain.kernel_reference import FunctionReference, same_memory
from mlc_toolchain.kernel_resources import KernelResources

Array = np.ndarray[Any, Any]
KERNEL_TOLERANCE = 2e-3  # relative to a result's largest element: two roundings to float16
INDEX_DTYPES = ("int32", "int64")


@dataclass
class KernelCheck:
    """The check of a kernel. function: the tensor function that contains it. counts: over all its launches.

    launches: in one call of each exported function. error: maximum error of the function's results, relative to the
    result's largest element; None without a reference. problem: the fault found, or empty.
    """

    kernel: str
    function: str
    resources: KernelResources
    launches: Counter[str] = field(default_factory=Counter)
    counts: Counts = field(default_factory=Counts)
    error: float | None = None
    problem: str = ""


class Checker:
    """Runs tensor functions in the simulator, compares them with the reference, and keeps a row for each kernel.

    A call with the sizes and indices of an earlier one (in equal layers) is not simulated again: it takes the
    reference's results and the launches of the first. So do calls after a fault, so that later kernels are
    still checked.
    """

    def __init__(
        self,
        mod: IRModule,
        device: Device,
        reference: FunctionReference,
        resources: Mapping[str, KernelResources],
    ):
        self.device, self.reference = device, reference
        functions = mod.of_type(PrimFunc)
        self.names = {id(f): n for n, f in functions.items()}
        self.rows = {n: KernelCheck(n, _owner(n, functions), r) for n, r in resources.items()}
        self.entry, self.total = "packing", 0
        self.simulated: dict[Hashable, list[Launched]] = {}

    def has_kernels_left(self, func: Function) -> bool:
        """Whether some kernel of the functions that ``func`` calls has not run yet."""
        called = {n.name for b in func.bindings for n in walk(b.value) if isinstance(n, GlobalVar)}
        return any(row.function in called and not row.launches and not row.problem for row in self.rows.values())

    def run(self, func: PrimFunc, *args: Any) -> None:
        """Run a function in place."""
        name, key = self.names[id(func)], _call_key(func, args)
        expected = self.reference.run(name, func, args)
        if expected is not None and key in self.simulated:
            _replace(args, expected)
            self.count(self.simulated[key])
            return
        try:
            launches = self.device.run(func, *args)
        except SimulationError as fault:
            _fail([row for row in self.rows.values() if row.function == name], fault)
            _replace(args, expected)
            return
        self.simulated[key] = launches
        self.count(launches)
        if expected is not None:
            _compare([self.rows[n] for n in {launched.kernel for launched in launches}], func, args, expected)

    def count(self, launches: Sequence[Launched]) -> None:
        """Add launches to the rows of their kernels, as launches of ``entry``."""
        for launched in launches:
            row = self.rows[launched.kernel]
            row.launches[self.entry] += 1
            row.counts += launched.counts
        self.total += len(launches)


def _call_key(func: PrimFunc, args: Sequence[Any]) -> Hashable:
    """A key of what a call's control flow depends on: sizes, scalars, indices, and which arrays alias."""
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    indices = tuple(a.tobytes() for a in arrays if a.dtype.name in INDEX_DTYPES)
    scalars = tuple(a for a in args if not isinstance(a, np.ndarray))
    return id(func), tuple(a.shape for a in arrays), scalars, indices, tuple(same_memory(args))


def _owner(kernel: str, functions: Mapping[str, PrimFunc]) -> str:
    """The host function of a kernel: the one with the longest name that is a prefix of the kernel's."""
    return max((n for n in functions if n != kernel and kernel.startswith(f"{n}_kernel")), key=len, default=kernel)


def _fail(rows: list[KernelCheck], fault: SimulationError) -> None:
    for row in rows:
        if not row.problem and (f"kernel {row.kernel}" in fault.where or not fault.where):
            row.problem = "; ".join([fault.message, *fault.where[1:]])


def _compare(rows: list[KernelCheck], func: PrimFunc, args: Any, expected: list[Any]) -> None:
    dropped = {id(b) for b in scratch(func)}
    pairs = [(a, b) for p, a, b in zip(func.params, args, expected, strict=True) if id(p) not in dropped]
    error = max((relative_error(a, b) for a, b in pairs if isinstance(a, np.ndarray)), default=0.0)
    for row in rows:
        row.error = max(row.error or 0.0, error)
        if error > KERNEL_TOLERANCE and not row.problem:
            row.problem = f"the function's results differ by {error:.2g} of the largest element"


def _replace(args: Any, expected: list[Any] | None) -> None:
    for array, value in zip(args, expected or (), strict=False):
        if isinstance(array, np.ndarray) and array.flags.writeable:
            array[...] = value


def relative_error(got: Array, expected: Array) -> float:
    """The maximum difference relative to the largest expected magnitude; for integers, 1 if any differs, else 0."""
    if got.dtype.kind in "iub" or expected.dtype.kind in "iub":
        return float(not np.array_equal(got, expected))
    a, b = got.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):  # inf - inf
        difference = np.where(same, 0.0, np.abs(a - b))
    scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0)) or 1.0
    worst = float(np.max(difference, initial=0.0)) / scale
    return float("inf") if np.isnan(worst) else worst
