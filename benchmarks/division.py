"""Simulate how teams of 2 to 64 threads divide the loops of compiled models: the largest share of a thread / the mean.

Run ``python benchmarks/division.py``. Each number of threads is the ``num-cores`` of a target for which the models are
compiled. Pieces are those of ``backends/cpu/team.py``; all iterations of a loop take the same time, and a thread that
has finished its own part claims pieces of others.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from compile_time import MODEL, RESULTS

from mlc_cli import console
from mlc_compiler.backends.cpu.kernels import DYNAMIC
from mlc_compiler.backends.cpu.team import MIN_PIECES
from mlc_compiler.ir.expr import IntImm, PrimExpr, const
from mlc_compiler.ir.module import GlobalVar, IRModule
from mlc_compiler.ir.simplify import simplify
from mlc_compiler.ir.visitor import free_vars, substitute, walk
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.relax.nodes import Call, Function
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PARALLEL, BufferLoad, For, PrimFunc
from mlc_toolchain.source import PRESETS
from model_zoo import registry
from model_zoo.llama import LlamaConfig
from quantization.schemes import get_scheme

CPU = "cpu:znver4"
THREADS = (2, 4, 8, 16, 32, 64)
LAYERS = 2  # all layers have the same kernels
SMOLLM2 = LlamaConfig.from_hf(json.loads((PRESETS / "smollm2-135m-instruct.json").read_text()))
MODELS = {
    name: replace(config, num_hidden_layers=LAYERS, context_window_size=2048)
    for name, config in (("SmolLM2-135M", SMOLLM2), ("1.1 B Llama shape", MODEL))
}
SIZES = {"prefill": {"seq_len": 512}, "decode": {}}


@dataclass(frozen=True)
class Loop:
    """A parallel loop of a kernel. dynamic: its pieces are single iterations."""

    kernel: str
    iterations: int
    dynamic: bool


@dataclass(frozen=True)
class Row:
    """The shares of a loop, by the number of threads.

    iterations: of the loop. largest_share: the largest share of a thread / the mean.
    """

    model: str
    function: str
    kernel: str
    iterations: dict[int, int]
    largest_share: dict[int, float]


def pieces(iterations: int, threads: int, dynamic: bool) -> list[list[int]]:
    """The lengths of the pieces of each thread's part."""
    parts = [iterations * (t + 1) // threads - iterations * t // threads for t in range(threads)]
    return [list(_pieces_of(part, 1 if dynamic else -(-part // MIN_PIECES))) for part in parts]


def _pieces_of(left: int, most: int) -> Iterator[int]:
    """Half of what is left of a part, up to ``most``, one after the other."""
    while left:
        piece = min(most, (left + 1) // 2)
        yield piece
        left -= piece


def largest_share(iterations: int, threads: int, dynamic: bool = False) -> float:
    """The iterations after which the last thread ends, as a multiple of the mean of all threads."""
    left = pieces(iterations, threads, dynamic)
    free = [(0, thread) for thread in range(threads)]
    last = 0
    while free:
        time, thread = heapq.heappop(free)
        owner = next((o % threads for o in range(thread, thread + threads) if left[o % threads]), None)
        last = max(last, time)
        if owner is not None:
            heapq.heappush(free, (time + left[owner].pop(0), thread))
    return last * threads / iterations


def loops(mod: IRModule, function: str) -> Iterator[Loop]:
    """The parallel loops of the kernels that a graph function calls, except those whose extent depends on data."""
    targets = [b.value.target for b in mod.of_type(Function)[function].bindings if isinstance(b.value, Call)]
    for name in dict.fromkeys(t.name for t in targets if isinstance(t, GlobalVar)):
        for node in walk(mod.of_type(PrimFunc)[name]):
            if isinstance(node, For) and node.kind == PARALLEL:
                extent = _number(node.extent, SIZES[function])
                if extent is not None:
                    yield Loop(name, extent, node.annotations.get("schedule") == DYNAMIC)


def _number(extent: PrimExpr, sizes: dict[str, int]) -> int | None:
    if any(isinstance(node, BufferLoad) for node in walk(extent)):
        return None
    values = {var: const(sizes[var.name], var.dtype) for var in free_vars(extent)}
    value = simplify(substitute(extent, values))
    assert isinstance(value, IntImm)
    return value.value


def rows(name: str, config: LlamaConfig) -> Iterator[Row]:
    exported = registry.export_model(config, get_scheme("q4f16_1")).mod
    compiled = [run_passes(exported, pipeline(Target(f"{CPU} -num-cores={threads}"))) for threads in THREADS]
    for function in SIZES:
        for same in zip(*(loops(mod, function) for mod in compiled), strict=True):
            by_threads = dict(zip(THREADS, same, strict=True))
            shares = {t: round(largest_share(x.iterations, t, x.dynamic), 3) for t, x in by_threads.items()}
            iterations = {t: x.iterations for t, x in by_threads.items()}
            yield Row(name, function, same[0].kernel, iterations, shares)


def main() -> None:
    found = [row for name, config in MODELS.items() for row in rows(name, config)]
    header = ["model", "function", "kernel", *(f"{t}" for t in THREADS)]
    console.table(
        header,
        [
            [r.model, r.function, r.kernel, *(f"{r.iterations[t]}: {r.largest_share[t]:.2f}" for t in THREADS)]
            for r in found
        ],
    )
    (RESULTS / "division.json").write_text(console.to_json(found) + "\n")


if __name__ == "__main__":
    main()
