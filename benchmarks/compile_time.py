"""Seconds from a model to its library, by pass: a Llama of 1.1 B parameters (22 layers), without weights.

Run ``python benchmarks/compile_time.py --quantization q4f16_1``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mlc_cli import console
from mlc_compiler.driver import build_library
from mlc_compiler.target import Target
from mlc_evaluation.machine_limits import machine_name
from mlc_version import __version__
from model_zoo import registry
from model_zoo.llama import LlamaConfig
from quantization.schemes import get_scheme

RESULTS = Path(__file__).resolve().parent / "results"
MODEL = LlamaConfig(
    vocab_size=49152,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=22,
    num_attention_heads=32,
    num_key_value_heads=4,
    context_window_size=2048,
)


@dataclass(frozen=True)
class Result:
    """The result of a run. seconds: wall time by phase, in order. bindings: number in the traced graph functions."""

    machine: str
    version: str
    quantization: str
    bindings: int
    kernels: int
    library_bytes: int
    seconds: dict[str, float]


def run(quantization: str, device: str, model: LlamaConfig = MODEL) -> Result:
    begin = time.perf_counter()
    exported = registry.export_model(model, get_scheme(quantization))
    traced = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        built = build_library(exported.mod, Target(device), Path(folder) / "lib.so")
        size = built.output.stat().st_size
    bindings = sum(len(b.bindings) for f in exported.mod.functions.values() for b in getattr(f, "blocks", ()))
    seconds = {"trace": traced, **built.seconds}
    return Result(machine_name(), __version__, quantization, bindings, built.num_kernels, size, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quantization", default="q4f16_1")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    result = run(args.quantization, args.device)
    total = sum(result.seconds.values())
    console.table(["phase", "seconds"], [[k, f"{v:.2f}"] for k, v in [*result.seconds.items(), ("total", total)]])
    console.note(f"{result.bindings} bindings, {result.kernels} kernels, {console.format_bytes(result.library_bytes)}")
    (RESULTS / f"compile_time-{args.quantization}.json").write_text(console.to_json(result) + "\n")


if __name__ == "__main__":
    main()
