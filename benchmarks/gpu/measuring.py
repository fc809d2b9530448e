"""Build functions for a GPU and time their calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlc_cli import console
from mlc_compiler.api import as_module, build_prepared
from mlc_compiler.backends.cuda.graphs import CAPTURE
from mlc_compiler.pipeline import entries, run_passes
from mlc_compiler.relax.nodes import Function
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from mlc_runtime import Library

RESULTS = Path(__file__).resolve().parents[1] / "results"


@dataclass(frozen=True)
class Bench:
    """Builds and times functions on a device.

    install: called with each library before its first call. repeat: number of measurements for the median.
    min_repeat_ms: minimum duration of a measurement; longer calls are made once.
    """

    target: Target
    install: Callable[[Library], None] = lambda _: None
    repeat: int = 7
    min_repeat_ms: float = 20.0

    def build(self, func: PrimFunc, graph: bool = True) -> Library:
        """Build a library with function ``main``. graph: whether its launches are captured as a CUDA graph."""
        mod = run_passes(as_module(func), entries())
        calls = {name: f.with_attr(CAPTURE, graph) for name, f in mod.of_type(Function).items()}
        library, _ = build_prepared(mod.updated(calls), self.target, None)
        self.install(library)
        return library

    def seconds(self, library: Library, *args: Any) -> float:
        """The median host time of a call of ``main``, including launch and synchronization."""
        timing = library.time_evaluator("main", number=1, repeat=self.repeat, min_repeat_ms=self.min_repeat_ms)
        return timing(*args).median


def save(result: object, name: str) -> Path:
    """Write a result to ``benchmarks/results/NAME.json``; returns the path."""
    path = RESULTS / f"{name}.json"
    path.write_text(console.to_json(result) + "\n")
    return path
