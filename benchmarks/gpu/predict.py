"""Predicted tokens per second on an H200, from the launches and bytes of compiled models. Not a measurement.

    python benchmarks/gpu/predict.py --models llama-3.1-8b-instruct --schemes q4f16_1

The time of a step is the sum over its kernels of a fixed time plus bytes / rate. Arithmetic, host work between steps
and hits in the L2 cache are ignored, so that only bandwidth and launches limit a step.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from measuring import save
from presets import BATCHES, MODELS, SCHEMES, Preset, decode_sizes, export_preset
from traffic import Launched, launches_of

from mlc_cli import console
from mlc_compiler.ir.module import IRModule
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.target import Target
from mlc_compiler.tuning.gpu_prediction import LAUNCH_SECONDS

READ_BYTES_PER_S = 4.0e12
OVERLAPPED_SECONDS = 0.6e-6
PLANNED_KERNELS = 5  # per layer, after planned fusions

ASSUMPTIONS = f"""Prediction, not a measurement. Assumed for an H200:
  {READ_BYTES_PER_S / 1e12:.1f} TB/s read, the rate of a published read-only kernel on this GPU (its pins: 4.8 TB/s);
  {1e6 * LAUNCH_SECONDS} us for each kernel of a CUDA graph until its reads are at full rate, published for an H100;
  {1e6 * OVERLAPPED_SECONDS} us of it stay, an estimate, for kernels that prefetch weights before they wait for others;
  every kernel reads at the full rate, and arithmetic takes no time.
limit: weights and cache are read once, and nothing else happens; graph: kernels and bytes as compiled, none overlaps;
overlapped: kernels with prefetches do; planned: the bytes of the limit in {PLANNED_KERNELS} kernels per layer and one
more, all of which do. GB: bytes of the limit; times: bytes as compiled, divided by these."""


@dataclass(frozen=True)
class Step:
    """A decode step: numbers of kernels and of kernels that prefetch weights, and bytes of memory accessed."""

    kernels: int
    prefetching: int
    nbytes: float

    def seconds(self, fixed: float, overlapped: float) -> float:
        """The time of the step. fixed: seconds per kernel besides its bytes; overlapped: for kernels that prefetch."""
        own = self.kernels - self.prefetching
        return own * fixed + self.prefetching * overlapped + self.nbytes / READ_BYTES_PER_S


@dataclass(frozen=True)
class Prediction:
    """Tokens per second of all sequences together, see ``ASSUMPTIONS``."""

    limit: float
    graph: float
    overlapped: float
    planned: float


def predict(compiled: Step, planned: Step, batch: int) -> Prediction:
    """The prediction for a step of ``batch`` tokens, as it is compiled and as it is planned."""
    return Prediction(
        limit=batch / planned.seconds(0.0, 0.0),
        graph=batch / compiled.seconds(LAUNCH_SECONDS, LAUNCH_SECONDS),
        overlapped=batch / compiled.seconds(LAUNCH_SECONDS, OVERLAPPED_SECONDS),
        planned=batch / planned.seconds(LAUNCH_SECONDS, OVERLAPPED_SECONDS),
    )


def planned_step(preset: Preset, batch: int, context: int) -> Step:
    """A step that reads the weights and the cache once."""
    nbytes = preset.weight_bytes + batch * context * preset.cache_bytes
    kernels = PLANNED_KERNELS * preset.layers + 1
    return Step(kernels, kernels, nbytes)


def compiled_step(lowered: IRModule, batch: int, context: int) -> Step:
    """The step of a lowered model: embedding, decode, sampling."""
    sizes = decode_sizes(batch, context)
    functions = ("embed", "decode" if batch == 1 else "batch_decode", "sample")
    launched: Sequence[Launched] = [k for name in functions for k in launches_of(lowered, name, sizes)]
    return Step(len(launched), sum(k.prefetches for k in launched), sum(k.nbytes for k in launched))


@dataclass(frozen=True)
class Row:
    """A prediction, with the steps that it is based on."""

    model: str
    scheme: str
    batch: int
    compiled: Step
    planned: Step
    tokens_per_s: Prediction

    @property
    def cells(self) -> list[object]:
        ratio, speeds = self.compiled.nbytes / self.planned.nbytes, self.tokens_per_s
        tokens = (speeds.limit, speeds.graph, speeds.overlapped, speeds.planned)
        sizes = [self.compiled.kernels, self.compiled.prefetching, f"{self.planned.nbytes / 1e9:.3f}", f"{ratio:.2f}"]
        return [self.model, self.scheme, self.batch, *sizes, *(f"{t:.0f}" for t in tokens)]


@dataclass(frozen=True)
class Result:
    """One run. context: positions of each sequence."""

    assumptions: list[str]
    target: str
    context: int
    rows: list[Row]


def predicted(model: str, scheme: str, target: Target, batches: Sequence[int], context: int) -> Iterator[Row]:
    """Yield the predictions for a preset, one for each batch size."""
    preset = export_preset(model, scheme, target)
    lowered = run_passes(preset.exported.mod, pipeline(target))
    for batch in batches:
        compiled, planned = compiled_step(lowered, batch, context), planned_step(preset, batch, context)
        yield Row(model, scheme, batch, compiled, planned, predict(compiled, planned, batch))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--schemes", nargs="+", default=SCHEMES)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--context", type=int, default=512, help="positions of each sequence")
    parser.add_argument("--target", default="cuda:sm_90a")
    args = parser.parse_args()

    console.note(ASSUMPTIONS)
    target = Target(args.target)
    found = [r for m in args.models for s in args.schemes for r in predicted(m, s, target, args.batches, args.context)]
    names = ["kernels", "prefetch", "GB", "times", "limit", "graph", "overlapped", "planned"]
    console.table(["model", "scheme", "batch", *names], [row.cells for row in found])
    console.note(
        f"saved as {save(Result(ASSUMPTIONS.splitlines(), args.target, args.context, found), 'gpu_predicted')}"
    )


if __name__ == "__main__":
    main()
