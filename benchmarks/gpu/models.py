"""Tokens per second of models with random weights on a GPU, compared with transformers if torch has CUDA.

    python benchmarks/gpu/models.py --models smollm2-135m-instruct --schemes q4f16_1

Shares are of the limits that ``micro.py`` measured on the same GPU: the read rate for a decode step, which
reads the weights and the KV cache once, and the best tensor core rate for a prefill.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata

from cuda_device import Device, read_device
from engines_gpu import CompiledEngine, Engine, TorchEngine
from measuring import RESULTS, save
from presets import BATCHES, MODELS, SCHEMES, Preset, export_preset

from mlc_cli import console
from mlc_compiler.target import Target
from mlc_errors import MLCError, UnsupportedError

PREFILLS = (512, 4096)
SIZES = {"context_window_size": 8192, "prefill_chunk_size": 2048, "max_batch_size": max(BATCHES)}
PACKAGES = ("mlc-cli", "llvmlite", "torch", "transformers")


@dataclass(frozen=True)
class Limits:
    """Limits measured by ``micro.py``: bytes read and tensor core operations per second."""

    read_bytes_per_s: float
    flop_per_s: float


@dataclass(frozen=True)
class Decode:
    """A decode step of a batch. share: of the read rate, None without measured limits."""

    batch: int
    tokens_per_s: float
    share: float | None


@dataclass(frozen=True)
class Prefill:
    """The prefill of a prompt. share: of the tensor core rate, None without measured limits."""

    tokens: int
    tokens_per_s: float
    share: float | None


@dataclass(frozen=True)
class Speed:
    """The measurements of a model on an engine. failed: why there are none."""

    model: str
    engine: str
    decode: list[Decode]
    prefill: list[Prefill]
    failed: str | None = None


@dataclass(frozen=True)
class Result:
    """One run. context: tokens of each sequence before the measured steps."""

    device: Device
    versions: dict[str, str]
    context: int
    limits: Limits | None
    speeds: list[Speed]


def read_limits(device: Device) -> Limits | None:
    """The best rates of the saved result of ``micro.py``; None when there is none."""
    path = RESULTS / f"gpu_micro-{device.slug}.json"
    if not path.is_file():
        return None
    found = json.loads(path.read_text())
    reads, products = found["read"], [*found["products"], *found["warpgroup_products"]]
    return Limits(max(r["bytes_per_s"] for r in reads), max(p["flop_per_s"] for p in products))


@dataclass(frozen=True)
class Work:
    """The minimum work of a model. weight_bytes, cache_bytes: see ``Preset``; linear: elements of linear layers."""

    weight_bytes: int
    cache_bytes: int
    linear: int
    layers: int
    hidden: int

    @staticmethod
    def of(preset: Preset, plain: Preset) -> Work:
        """The work of a preset. plain: the same model without quantization."""
        return Work(preset.weight_bytes, preset.cache_bytes, plain.linear_elements, preset.layers, preset.hidden)

    def step_bytes(self, batch: int, context: int) -> int:
        """Bytes that a step reads."""
        return self.weight_bytes + batch * context * self.cache_bytes

    def prefill_flop(self, tokens: int) -> int:
        """Operations of a prefill, two per multiply-add: linear layers without the head, and causal attention."""
        return 2 * (self.linear * tokens + self.layers * self.hidden * tokens * (tokens + 1))


def measure(
    model: str,
    engine: Engine,
    work: Work,
    limits: Limits | None,
    *,
    batches: Sequence[int] = BATCHES,
    prefills: Sequence[int] = PREFILLS,
    context: int = 512,
    steps: int = 64,
    repeat: int = 3,
) -> Speed:
    """Medians of ``repeat`` runs of each size."""
    read_rate = None if limits is None else limits.read_bytes_per_s
    flop_rate = None if limits is None else limits.flop_per_s

    def prefill(tokens: int) -> Prefill:
        engine.prefill(tokens)
        seconds = statistics.median(engine.prefill(tokens) for _ in range(repeat))
        return Prefill(tokens, tokens / seconds, _share(work.prefill_flop(tokens) / seconds, flop_rate))

    def decode(batch: int) -> Decode:
        seconds = statistics.median(engine.decode(batch, context, steps) for _ in range(repeat))
        middle = context + steps // 2
        share = _share(work.step_bytes(batch, middle) / seconds, read_rate)
        return Decode(batch, batch / seconds, share)

    return Speed(model, engine.name, [decode(b) for b in batches], [prefill(t) for t in prefills])


def _share(rate: float, limit: float | None) -> float | None:
    return None if limit is None else rate / limit


def speeds(models: Sequence[str], schemes: Sequence[str], context: int, limits: Limits | None) -> Iterator[Speed]:
    """Yield all measurements; an engine that fails, for example out of memory, is reported and the run continues."""
    target, longest = Target("cuda"), SIZES["context_window_size"]
    for model in models:
        plain = export_preset(model, "q0f16", target, **SIZES)
        engines: list[tuple[Preset, Callable[[], Engine]]] = []
        for scheme in schemes:
            preset = export_preset(model, scheme, target, **SIZES)
            engines.append((preset, partial(CompiledEngine, preset, scheme, target)))
        if has_torch_cuda():
            engines += [(plain, partial(TorchEngine, model, compiled, longest)) for compiled in (False, True)]
        for preset, make in engines:
            yield _measured(model, make, Work.of(preset, plain), limits, context)


def _measured(model: str, make: Callable[[], Engine], work: Work, limits: Limits | None, context: int) -> Speed:
    try:
        engine = make()
        try:
            return measure(model, engine, work, limits, context=context)
        finally:
            engine.close()
    except (MLCError, RuntimeError) as error:
        console.note(f"{model}: {error}")
        return Speed(model, str(make), [], [], f"{type(error).__name__}: {error}")


def has_torch_cuda() -> bool:
    """Whether torch is installed and has CUDA."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def versions() -> dict[str, str]:
    """Versions of installed packages."""
    installed = {d.name for d in metadata.distributions()}
    return {name: metadata.version(name) for name in PACKAGES if name in installed}


def show(result: Result) -> None:
    """Print a table of decode and one of prefill."""
    decode = [
        [s.model, s.engine, d.batch, f"{d.tokens_per_s:.0f}", _percent(d.share)]
        for s in result.speeds
        for d in s.decode
    ]
    prefill = [
        [s.model, s.engine, p.tokens, f"{p.tokens_per_s:.0f}", _percent(p.share)]
        for s in result.speeds
        for p in s.prefill
    ]
    console.table(["model", "engine", "batch", "decode, tokens/s", "of read rate"], decode)
    console.table(["model", "engine", "prompt", "prefill, tokens/s", "of the best products"], prefill)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--schemes", nargs="+", default=SCHEMES)
    parser.add_argument("--context", type=int, default=512, help="tokens of each sequence before a step of decode")
    args = parser.parse_args()
    try:
        device = read_device()
    except UnsupportedError as error:
        console.note(f"{error.message}: nothing was measured")
        return
    limits = read_limits(device)
    if limits is None:
        console.note("benchmarks/gpu/micro.py has not run on this GPU: there are no shares of its limits")
    found = list(speeds(args.models, args.schemes, args.context, limits))
    result = Result(device, versions(), args.context, limits, found)
    show(result)
    console.note(f"saved as {save(result, f'gpu_models-{device.slug}')}")


if __name__ == "__main__":
    main()
