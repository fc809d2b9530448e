"""Kernels on the CPU as loops over threads; results of ascending and descending thread order are compared."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from mlc_compiler.api import build
from mlc_compiler.backends.cuda.passes.place_syncs import PlaceSyncs
from mlc_compiler.backends.cuda.passes.simt_to_loops import SimtToLoops
from mlc_compiler.backends.cuda.passes.thread_reductions import ThreadReductions
from mlc_compiler.backends.cuda.passes.virtual_threads import VirtualThreads
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.passes.verify import Verify
from mlc_compiler.pipeline import run_passes
from tests.compiler.backends.cuda.kernels import main

ORDERS = {"ascending": False, "descending": True}


class Race(AssertionError):
    """The results of a kernel depend on the order of its threads."""


def lowered(mod: IRModule) -> IRModule:
    """A scheduled module as kernels with barriers."""
    return run_passes(
        mod, [LowerBlocks(), VirtualThreads(), ThreadReductions(), PlaceSyncs(), Verify(after="the kernel passes")]
    )


def run(mod: IRModule, *arrays: np.ndarray, name: str = "main") -> tuple[np.ndarray, ...]:
    """The arguments after a call of a module of kernels, as :func:`lowered` gives it, on the CPU.

    The threads run in ascending and in descending order. Raises Race when the results differ.
    """
    both = IRModule(
        {
            order: main(SimtToLoops(descending).run(mod), name).with_attr("global_symbol", order)
            for order, descending in ORDERS.items()
        }
    )
    library = build(run_passes(both, [Verify(after="simt-to-loops")]), num_threads=1)
    results = [tuple(np.array(a) for a in arrays) for _ in ORDERS]
    for order, copies in zip(ORDERS, results, strict=True):
        library[order](*copies)
    for number, (a, b) in enumerate(zip(*results, strict=True)):
        if not _equal(a, b):
            raise Race(f"argument {number} of {name!r} differs between ascending and descending threads")
    return results[0]


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two results are equal up to rounding: the CPU back end may reassociate sums of floats."""
    if a.dtype.kind in "iub":
        return np.array_equal(a, b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    scale = np.abs(x[np.isfinite(x)]).max(initial=0.0)
    precision = 64 * float(ml_dtypes.finfo(a.dtype).eps)
    return np.allclose(x, y, rtol=precision, atol=precision * scale, equal_nan=True)
