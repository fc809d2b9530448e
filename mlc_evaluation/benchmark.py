"""The `bench` command as a function: speed of prefill and decode, time to first token, load time, memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import UnsupportedError, UsageError
from mlc_evaluation.machine_limits import machine_name, measure_int8, measure_limits
from mlc_evaluation.observed import ModelFiles
from mlc_evaluation.step_costs import StepCost, step_cost
from mlc_runtime.decoder import Decoder, DecodeStep
from mlc_runtime.llm import LLM

SEED = 0
WARM_UP = 2  # decode steps before the first timed one


@dataclass(frozen=True)
class BenchOptions:
    """Options of ``bench``. prompt_lengths, depths: tokens. generate: decode steps per repetition. batches: sizes."""

    prompt_lengths: Sequence[int] = (128, 512)
    generate: int = 128
    batches: Sequence[int] = (1,)
    depths: Sequence[int] = (0,)
    repeat: int = 5

    def __post_init__(self) -> None:
        """Raise UsageError for counts below one and depths below zero."""
        counts = {"prompt-lengths": self.prompt_lengths, "batch": self.batches}
        counts |= {"generate": [self.generate], "repeat": [self.repeat]}
        least = {**dict.fromkeys(counts, 1), "depth": 0}
        for name, values in {**counts, "depth": self.depths}.items():
            if min(values, default=least[name]) < least[name]:
                raise UsageError(f"--{name}: got {min(values)}; expected at least {least[name]}")


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of a measured time, in seconds."""

    p10: float
    p50: float
    p90: float
    p99: float

    @staticmethod
    def of(seconds: Sequence[float]) -> Percentiles:
        return Percentiles(*map(float, np.percentile(seconds, (10, 50, 90, 99))))


@dataclass(frozen=True)
class MachineLimits:
    """Limits of this machine per second, with the model's number of threads, measured by loops that do nothing else.

    operations: float32; integer_operations: of 8-bit products, None if the CPU has neither AVX-512 VNNI nor AVX2.
    """

    read_bytes: float
    operations: float
    integer_operations: float | None


@dataclass(frozen=True)
class PrefillResult:
    """Prefill of ``tokens`` tokens with an empty cache. Seconds until the first token is sampled.

    share: operations per second as a share of the limit.
    """

    tokens: int
    tokens_per_second: float
    time_to_first_token_seconds: Percentiles
    operations: int
    share: float | None = None


@dataclass(frozen=True)
class DecodeResult:
    """Decode steps of ``batch`` sequences, each of ``depth`` tokens before the first step.

    tokens_per_second: of all sequences together, from the median step. step_bytes: weights, activations and KV cache
    of a step. share: bytes per second as a share of the limit.
    """

    batch: int
    depth: int
    tokens_per_second: float
    step_seconds: Percentiles
    step_bytes: int
    step_operations: int
    share: float | None = None


@dataclass(frozen=True)
class BenchReport:
    """The result of ``bench``. peak_bytes: peak memory of the process."""

    model: Path
    machine: str
    threads: int
    quantization: str
    load_seconds: float
    peak_bytes: int
    params_bytes: int
    prefill: list[PrefillResult]
    decode: list[DecodeResult]
    limits: MachineLimits | None = None


def bench(files: ModelFiles, options: BenchOptions) -> BenchReport:
    """Measure a compiled model on random tokens. Raises UsageError for lengths that do not fit its context."""
    begin = time.perf_counter()
    with files.open() as llm:
        load_seconds = time.perf_counter() - begin
        _check(llm, options)
        threads = llm.model.context.num_threads
        runs = Runs(llm)
        prefill = [runs.prefill(n, options.repeat) for n in options.prompt_lengths]
        pairs = [(batch, depth) for batch in options.batches for depth in options.depths]
        decode = [runs.decode(batch, depth, options) for batch, depth in pairs]
        report = BenchReport(
            files.folder,
            machine_name(),
            threads,
            llm.compiled.spec.quantization,
            load_seconds,
            _peak_bytes(),
            llm.model.params.nbytes,
            prefill,
            decode,
        )
        if llm.library.is_for_gpu:
            return report
        return _with_limits(report, _limits(threads), llm.library.metadata)  # last: it takes 1 GiB itself


class Runs:
    """Measurements of an open model."""

    def __init__(self, llm: LLM):
        self.model: Decoder = llm.model
        self.metadata = llm.library.metadata
        vocabulary = int(self.metadata["active_vocab_size"])
        self._ids = np.random.default_rng(SEED).integers(0, vocabulary, self.model.spec.context_window_size).tolist()

    def prefill(self, tokens: int, repeat: int) -> PrefillResult:
        """Measure ``repeat`` prompts of ``tokens`` tokens, after a warm-up."""
        step, seconds = DecodeStep(self.model, 1), []
        for _ in range(repeat + 1):
            with self.model.pool.lent(1) as (row,):
                step.assign([row])
                begin = time.perf_counter()
                step.prefill([(row, self._ids[:tokens])])
                step.sampler.sample([0.0])
                seconds.append(time.perf_counter() - begin)
        times = Percentiles.of(seconds[1:])
        return PrefillResult(tokens, tokens / times.p50, times, self._prefill_operations(tokens))

    def decode(self, batch: int, depth: int, options: BenchOptions) -> DecodeResult:
        """Measure ``generate`` steps from ``depth`` tokens on, ``repeat`` times."""
        seconds: list[float] = []
        with self.model.pool.lent(1) as (first,):
            if depth:
                self.model.prefill([(first, self._ids[:depth])], np.empty((1, self.model.spec.vocab_size), np.float32))
            for _ in range(options.repeat):
                seconds += self._steps(first, batch, options.generate)
        times = Percentiles.of(seconds)
        cost = self._step_cost(batch, depth + options.generate // 2)
        return DecodeResult(batch, depth, batch / times.p50, times, cost.nbytes, cost.operations)

    def _steps(self, first: int, batch: int, count: int) -> list[float]:
        """Run ``count`` steps with ``batch`` forks of row ``first``; returns the seconds of those after the warm-up."""
        pool = self.model.pool
        rows, tokens = [pool.fork(first) for _ in range(batch)], self._ids[:batch]
        step, seconds = DecodeStep(self.model, batch), []
        step.assign(rows)
        try:
            for _ in range(count):
                begin = time.perf_counter()
                step.token_pos[:batch] = [pool.extend(row, 1) for row in rows]
                step.input_ids[:batch] = tokens
                step.forward()
                tokens = step.sampler.sample([0.0] * batch)
                seconds.append(time.perf_counter() - begin)
        finally:
            for row in rows:
                pool.remove(row)
        return seconds[min(WARM_UP, count - 1) :]

    def _step_cost(self, batch: int, length: int) -> StepCost:
        """The cost of a step; ``length``: positions of each sequence."""
        padded = 1 << (batch - 1).bit_length()
        function = "decode" if batch == 1 else "batch_decode"
        return step_cost(self.metadata, function, min(padded, self.model.spec.max_batch_size), batch * length)

    def _prefill_operations(self, tokens: int) -> int:
        chunk = self.model.spec.prefill_chunk_size
        calls = [chunk] * (tokens // chunk) + ([tokens % chunk] if tokens % chunk else [])
        return sum(step_cost(self.metadata, "prefill", n).operations for n in calls)


def _with_limits(report: BenchReport, limits: MachineLimits, metadata: Mapping[str, Any]) -> BenchReport:
    """Add shares of the limits; if activations are quantized, the limit of operations is that of int8 dot products."""
    integers = not report.quantization.startswith("q0") and "act=exact" not in metadata["opt"]
    limit = limits.integer_operations if integers else limits.operations
    prefill = [
        replace(p, share=p.operations / p.time_to_first_token_seconds.p50 / limit if limit else None)
        for p in report.prefill
    ]
    decode = [replace(d, share=d.step_bytes / d.step_seconds.p50 / limits.read_bytes) for d in report.decode]
    return replace(report, limits=limits, prefill=prefill, decode=decode)


def _check(llm: LLM, options: BenchOptions) -> None:
    """Raise UnsupportedError for an encoder-decoder, UsageError for a context or a batch that the library lacks."""
    spec = llm.model.spec
    if spec.decoder_start is not None:
        raise UnsupportedError("bench measures models without an encoder")
    longest = max([*options.prompt_lengths, max(options.depths, default=0) + options.generate])
    if longest > spec.context_window_size:
        raise UsageError(
            f"the measurement needs {longest} tokens; the context holds {spec.context_window_size}",
            hint="take shorter prompts, fewer steps or a smaller depth, or compile with a larger context_window_size",
        )
    if max(options.batches, default=0) > spec.max_batch_size:
        raise UsageError(
            f"--batch: got {max(options.batches)}; the library has max_batch_size {spec.max_batch_size}",
            hint="compile with --overrides max_batch_size=N",
        )


def _limits(threads: int) -> MachineLimits:
    found = measure_limits(threads, repeats=3)
    return MachineLimits(found.read_bytes_per_s, found.flop_per_s, measure_int8(threads, repeats=3))


def _peak_bytes() -> int:
    """The process's peak resident memory in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
