"""Measure llama.cpp on a GGUF file in a separate process, as ``bench`` measures a compiled model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlc_errors import MLCError, ResourceError
from mlc_evaluation.benchmark import BenchOptions, Percentiles

WORKER = Path(__file__).parent / "workers" / "llama_cpp_worker.py"
PROBE = "import llama_cpp"


@dataclass(frozen=True)
class Speed:
    """A measurement. tokens: prompt length, or context length before the first step. seconds: per prompt or step."""

    tokens: int
    tokens_per_second: float
    seconds: Percentiles


@dataclass(frozen=True)
class PeerReport:
    """Another engine's speeds with one sequence: prefill for each prompt length, decode for each depth."""

    engine: str
    file: Path
    prefill: list[Speed]
    decode: list[Speed]


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp as installed (llama-cpp-python) for the interpreter ``python``, and a GGUF file."""

    python: Path
    file: Path

    def check(self) -> None:
        """Raises MLCError if the file is missing, ResourceError if the interpreter has no llama_cpp."""
        if not self.file.is_file():
            raise MLCError(f"{self.file} is no file", hint="--compare takes a GGUF file of the same model")
        try:
            _run([str(self.python), "-c", PROBE])
        except MLCError as error:
            raise ResourceError(
                f"{self.python} cannot import llama_cpp: {error.message}",
                hint="pip install llama-cpp-python, or name an interpreter that has it: --compare-python PATH",
            ) from None

    def measure(self, options: BenchOptions, threads: int) -> PeerReport:
        """Measure the speeds with ``threads`` threads. Raises MLCError if llama.cpp fails."""
        request = {
            "file": str(self.file),
            "threads": threads,
            "prompt_lengths": list(options.prompt_lengths),
            "depths": list(options.depths),
            "generate": options.generate,
            "repeat": options.repeat,
        }
        output = _run([str(self.python), str(WORKER), json.dumps(request)])
        found = json.loads(output.splitlines()[-1])
        prefill = [_speed(count, seconds, count) for count, seconds in zip(options.prompt_lengths, found["prefill"])]
        decode = [_speed(depth, seconds, 1) for depth, seconds in zip(options.depths, found["decode"])]
        return PeerReport(f"llama.cpp (llama-cpp-python {found['version']})", self.file, prefill, decode)


def _speed(tokens: int, seconds: Sequence[float], of_each: int) -> Speed:
    times = Percentiles.of(seconds)
    return Speed(tokens, of_each / times.p50, times)


def _run(command: Sequence[str]) -> str:
    """The output of a command. Raises MLCError with the last line of its stderr if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise MLCError(str(error.strerror)) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise MLCError(lines[-1])
    return done.stdout
