"""Conversion speed and memory beside llama.cpp's quantizer and plain numpy: one 1.1 B parameter checkpoint, one run.

    python benchmarks/convert.py --folder build/convert-bench [--quantization q4f16_1] [--rounds 3]

A TinyLlama-sized float16 checkpoint is generated once into the folder (2.2 GB, and as a GGUF for llama.cpp, which
is installed to ``build/peers`` as for against_peers.py). Every converter runs in its own process; the rounds alternate;
medians are reported. Memory is the peak of the process minus that of the interpreter and its imports.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from peers.environments import Environments

from mlc_cli import console
from mlc_evaluation.machine_limits import Limits, machine_name, measure_limits

BENCHMARKS = Path(__file__).resolve().parent
ROOT, RESULTS = BENCHMARKS.parent, BENCHMARKS / "results"
PACKAGES = ("numpy", "llvmlite")
CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
    "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "float16",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip

PEAK = """
import json, sys, time
def peak(): return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
def report(started, before): print(json.dumps({"seconds": time.perf_counter() - started, "bytes": peak() - before}))
"""
OURS = """
from pathlib import Path
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
before, started = peak(), time.perf_counter()
convert_weight(ConvertOptions(sys.argv[1], sys.argv[3], Path(sys.argv[2])))
report(started, before)
"""
LLAMA_CPP = """
import llama_cpp, os
params = llama_cpp.llama_model_quantize_default_params()
params.ftype, params.nthread, params.pure = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, len(os.sched_getaffinity(0)), True
before, started = peak(), time.perf_counter()
assert llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), params) == 0
report(started, before)
"""
NUMPY = """
from pathlib import Path
import numpy as np, safetensors.numpy
def quantize(w):
    groups = w.reshape(w.shape[0], -1, 32)
    scale = np.abs(groups).max(axis=-1) / np.float16(7)
    codes = np.clip(np.rint(groups / scale[..., None] + np.float16(7)), 0, 14).astype(np.uint32)
    words = codes.reshape(w.shape[0], -1, 8) << np.arange(0, 32, 4, dtype=np.uint32)
    return np.bitwise_or.reduce(words, axis=-1), scale
before, started = peak(), time.perf_counter()
with safetensors.safe_open(Path(sys.argv[1]) / "model.safetensors", "np") as file, open(sys.argv[2], "wb") as out:
    for name in file.keys():
        value = file.get_tensor(name)
        for array in quantize(value) if value.ndim == 2 else (value,):
            out.write(array.tobytes())
report(started, before)
"""


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the checkpoint's tensors."""
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    keys = hidden // CONFIG["num_attention_heads"] * CONFIG["num_key_value_heads"]
    layer = {
        "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
    }  # fmt: skip
    yield "model.embed_tokens.weight", (CONFIG["vocab_size"], hidden)
    for index in range(CONFIG["num_hidden_layers"]):
        for name, shape in layer.items():
            yield f"model.layers.{index}.{name}.weight", shape
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (CONFIG["vocab_size"], hidden)


def values(shape: tuple[int, ...]) -> np.ndarray:
    """Normally distributed weights from POOL, rotated by an offset that depends on the size."""
    count = int(np.prod(shape))
    return np.resize(np.roll(POOL, -(count % 977)), count).reshape(shape)


POOL = (np.random.default_rng(0).standard_normal(1 << 24) * 0.02).astype(np.float16)


def write_checkpoint(folder: Path) -> Path:
    """The checkpoint as config.json and model.safetensors, written once."""
    path = folder / "model.safetensors"
    if path.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    header, offset = {}, 0
    for name, shape in shapes():
        stop = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, stop]}
        offset = stop
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, shape in shapes():
            file.write(values(shape).tobytes())
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def write_gguf(python: Path, checkpoint: Path, path: Path) -> Path:
    """The same tensors as an F16 GGUF, written once, in llama.cpp's environment."""
    if not path.exists():
        subprocess.run([python, "-m", "peers.gguf_files", checkpoint, path], cwd=BENCHMARKS, check=True)
    return path


def measured(script: str, *arguments: str, python: str | Path = sys.executable) -> dict[str, float]:
    """Seconds and bytes of a converter in a fresh process."""
    command = [str(python), "-c", PEAK + script, *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(done.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Speed:
    """Medians over the rounds; peak_bytes is the maximum. ratio: time relative to this project's."""

    converter: str
    seconds: float
    bytes_per_s: float
    share_of_bandwidth: float
    peak_bytes: float
    ratio: float


@dataclass(frozen=True)
class Result:
    quantization: str
    source_bytes: int
    machine: str
    versions: dict[str, str]
    limits: Limits
    speeds: list[Speed]


def run(folder: Path, quantization: str, rounds: int, skip: Sequence[str], scratch: Path) -> Result:
    """Run every converter ``rounds`` times, alternately, then measure the machine's limits."""
    source, outputs = write_checkpoint(folder / "source"), folder / "out"
    runs = {"mlc": lambda: measured(OURS, str(source), str(outputs / "mlc"), quantization)}
    if "numpy" not in skip:
        runs["numpy"] = lambda: measured(NUMPY, str(source), str(outputs / "numpy.bin"))
    if "llama.cpp" not in skip:
        python = Environments(scratch).python("llama.cpp")
        file = write_gguf(python, source, folder.resolve() / "source.gguf")
        runs["llama.cpp Q4_0"] = lambda: measured(LLAMA_CPP, str(file), str(outputs / "q4_0.gguf"), python=python)
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, convert in runs.items():
            shutil.rmtree(outputs, ignore_errors=True)
            outputs.mkdir()
            samples[name].append(convert())
    shutil.rmtree(outputs)
    nbytes = (source / "model.safetensors").stat().st_size
    limits = measure_limits(len(os.sched_getaffinity(0)))
    versions = {name: metadata.version(name) for name in PACKAGES}
    return Result(quantization, nbytes, machine_name(), versions, limits, speeds(samples, nbytes, limits))


def speeds(samples: dict[str, list[dict[str, float]]], nbytes: int, limits: Limits) -> list[Speed]:
    medians = {name: statistics.median(sample["seconds"] for sample in taken) for name, taken in samples.items()}
    return [
        Speed(
            converter=name,
            seconds=seconds,
            bytes_per_s=nbytes / seconds,
            share_of_bandwidth=nbytes / seconds / limits.read_bytes_per_s,
            peak_bytes=max(sample["bytes"] for sample in samples[name]),
            ratio=seconds / medians["mlc"],
        )
        for name, seconds in medians.items()
    ]


def show(result: Result) -> None:
    console.note(f"{result.source_bytes / 1e9:.2f} GB of float16 weights, {result.limits.threads} cores")
    rows = [
        [
            s.converter,
            f"{s.seconds:.2f}",
            f"{s.bytes_per_s / 1e6:.0f}",
            f"{s.share_of_bandwidth:.0%}",
            f"{s.peak_bytes / 1e6:.0f}",
            f"{s.ratio:.2f}",
        ]
        for s in result.speeds
    ]
    console.table(["converter", "s", "MB/s", "of bandwidth", "peak MB", "x our time"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="for the generated checkpoint and the outputs")
    parser.add_argument("--quantization", default="q4f16_1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip", nargs="*", default=[], choices=["numpy", "llama.cpp"])
    parser.add_argument("--scratch", type=Path, default=ROOT / "build" / "peers", help="has llama.cpp's environment")
    parser.add_argument("--output", type=Path, help="where the JSON goes (default: benchmarks/results/)")
    args = parser.parse_args()

    result = run(args.folder, args.quantization, args.rounds, args.skip, args.scratch.resolve())
    show(result)
    output = args.output or RESULTS / f"convert-{result.quantization}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(console.to_json(result) + "\n")


if __name__ == "__main__":
    main()
