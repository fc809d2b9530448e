"""Builds functions for a GPU and times their calls."""

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
    """Where functions run.

    install: called with each library before its first call. repeat: measurements, of which the median is taken.
    min_repeat_ms: how long one takes at least; a call that takes longer is made once.
    """

    target: Target
    install: Callable[[Library], None] = lambda _: None
    repeat: int = 7
    min_repeat_ms: float = 20.0

    def build(self, func: PrimFunc, graph: bool = True) -> Library:
        """The library of ``main``. graph: whether its launches are recorded as a CUDA graph and replayed."""
        mod = run_passes(as_module(func), entries())
        calls = {name: f.with_attr(CAPTURE, graph) for name, f in mod.of_type(Function).items()}
        library, _ = build_prepared(mod.updated(calls), self.target, None)
        self.install(library)
        return library

    def seconds(self, library: Library, *args: Any) -> float:
        """The median time of a call of ``main``, from the host's side: with the launch, and waiting for the end."""
        timing = library.time_evaluator("main", number=1, repeat=self.repeat, min_repeat_ms=self.min_repeat_ms)
        return timing(*args).median


def save(result: object, name: str) -> Path:
    """Write a result to ``benchmarks/results/NAME.json``; returns the path."""
    path = RESULTS / f"{name}.json"
    path.write_text(console.to_json(result) + "\n")
    return path
