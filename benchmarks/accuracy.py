"""How far quantized weights are from float32 ones: Kullback-Leibler divergence on held-out text, beside the size.

python benchmarks/accuracy.py MODEL_FOLDER --scratch DIR q4f16_1 q4f16_3 llama.cpp:Q4_0 llama.cpp:Q4_K_M

A name is a scheme of ours, with ``+`` and options of ``convert_weight`` (q4f16_1+calibration=auto), or a type of
llama.cpp with the mixture that it chooses. Weights are dequantized into the float32 model of transformers: activations
are not quantized, so that figures are those of the weights. The text is docstrings of Python's standard library; it is
read in parts, each from an empty cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy_texts import held_out_text
from peers.environments import Environments
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from mlc_toolchain.conversion_plan import Conversion
from mlc_toolchain.convert_weight import ConvertOptions, calibrated, plan_conversion, scratch_folder
from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from mlc_toolchain.readers.base import CheckpointReader
from model_zoo.weight_expr import CheckpointTensor, Concat, Expr
from quantization.codecs import codec

RESULTS = Path(__file__).resolve().parent / "results" / "accuracy.json"
LLAMA_CPP = "llama.cpp"


@dataclass(frozen=True)
class Accuracy:
    """Of one scheme. KL in nats, of float32 from it; same_top: a share of positions; bits: of the files, per weight.

    perplexity_float32: the model's own. quantize_seconds: to convert, on the machine's cores.
    """

    name: str
    bits: float
    megabytes: float
    positions: int
    kl_mean: float
    kl_standard_error: float
    kl_p99: float
    same_top: float
    perplexity: float
    perplexity_float32: float
    quantize_seconds: float


class Reference:
    """The float32 model and the text: ids [parts, length], last hidden states [parts, length, D]."""

    def __init__(self, folder: Path, positions: int, length: int):
        self.folder = folder
        self.model = load(folder)
        ids = AutoTokenizer.from_pretrained(folder)(held_out_text())["input_ids"]
        parts = positions // length
        stride = (len(ids) - length) // max(1, parts - 1)  # evenly over the text
        self.ids = torch.tensor([ids[i * stride : i * stride + length] for i in range(parts)])
        self.hidden = [last_hidden(self.model, part) for part in self.ids]

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def compare(self, name: str, weights: Mapping[str, np.ndarray], nbytes: int, seconds: float) -> Accuracy:
        """Divergence of the model with ``weights`` from this one."""
        model = with_weights(load(self.folder), weights)
        kl: list[torch.Tensor] = []
        same: list[torch.Tensor] = []
        nll: list[torch.Tensor] = []
        exact_nll: list[torch.Tensor] = []
        for ids, hidden in zip(self.ids, self.hidden, strict=True):
            log_p, log_q = log_probabilities(self.model, hidden), log_probabilities(model, last_hidden(model, ids))
            kl.append((log_p.exp() * (log_p - log_q)).sum(-1))
            same.append(log_p.argmax(-1) == log_q.argmax(-1))
            for losses, log_probability in ((nll, log_q), (exact_nll, log_p)):
                losses.append(-log_probability[torch.arange(len(ids) - 1), ids[1:]])
        divergence = torch.cat(kl).double()
        return Accuracy(
            name=name,
            bits=8 * nbytes / self.parameters,
            megabytes=nbytes / 1e6,
            positions=len(divergence),
            kl_mean=float(divergence.mean()),
            kl_standard_error=float(divergence.std() / len(divergence) ** 0.5),
            kl_p99=float(divergence.quantile(0.99)),
            same_top=float(torch.cat(same).double().mean()),
            perplexity=float(torch.cat(nll).double().mean().exp()),
            perplexity_float32=float(torch.cat(exact_nll).double().mean().exp()),
            quantize_seconds=seconds,
        )


def load(folder: Path) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model


@torch.inference_mode()
def last_hidden(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """[length, D], what the output head takes"""
    return model.model(ids[None]).last_hidden_state[0]


@torch.inference_mode()
def log_probabilities(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """[length, V]"""
    return torch.log_softmax(model.lm_head(hidden), -1)


def with_weights(model: PreTrainedModel, weights: Mapping[str, np.ndarray]) -> PreTrainedModel:
    """Set the model's weights by Hugging Face's names. Raises RuntimeError when one is missing."""
    parameters = dict(model.named_parameters())
    missing = set(parameters)
    for name, value in weights.items():
        if name in parameters:
            parameters[name].data.copy_(torch.from_numpy(value.astype(np.float32)))
            missing.discard(name)
    if missing:
        raise RuntimeError(f"no weight for {sorted(missing)[0]} and {len(missing) - 1} more")
    return model


def our_accuracy(reference: Reference, name: str, scratch: Path) -> Accuracy:
    scheme, *settings = name.split("+")
    given: dict[str, Any] = dict(setting.split("=", 1) for setting in settings)
    options = ConvertOptions(str(reference.folder), scheme, scratch / "unused", **given)
    started = time.monotonic()
    with scratch_folder(options.output) as folder:
        conversion = calibrated(plan_conversion(options), options, folder)
        weights = dict(decoded(conversion))
    return reference.compare(name, weights, conversion.output.nbytes, time.monotonic() - started)


def decoded(conversion: Conversion) -> Iterator[tuple[str, np.ndarray]]:
    """The weights that a conversion would write, dequantized, by the names of the checkpoint's tensors."""
    for task, converted in conversion.stream().run(conversion.tasks):
        array, form, shape = converted.arrays[0], task.format, task.production.shape
        if form is not None:
            kinds = [output.name.rpartition(".")[2] for output in task.outputs]
            made = dict(zip(kinds, converted.arrays, strict=True))
            array = np.concatenate(list(codec(form.scheme).decode_rows(made, form.scheme, shape, form.layout)))
        yield from by_source(task.production.value, array, conversion.reader)


def by_source(value: Expr, array: np.ndarray, reader: CheckpointReader) -> Iterator[tuple[str, np.ndarray]]:
    """The checkpoint's tensors in a parameter that joins them along its rows."""
    match value:
        case CheckpointTensor(name):
            yield name, array
        case Concat(parts, axis=0):
            ends = np.cumsum([reader.info(next(part.sources())).shape[0] for part in parts])
            for part, rows in zip(parts, np.split(array, ends[:-1]), strict=True):
                yield from by_source(part, rows, reader)
        case _:
            raise RuntimeError(f"cannot take {value} apart")


def llama_cpp_accuracy(reference: Reference, name: str, scratch: Path) -> Accuracy:
    kind, path = name.partition(":")[2], scratch / f"{name.partition(':')[2]}.gguf"
    python = Environments(scratch).python(LLAMA_CPP)
    command: list[str | Path] = [python, "-m", "peers.gguf_files", reference.folder, path, kind, "mixed"]
    started = time.monotonic()
    folder = Path(__file__).resolve().parent
    subprocess.run(command, check=True, capture_output=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)})
    seconds, checkpoint = time.monotonic() - started, GGUFCheckpoint(path)
    weights = {name: checkpoint.read(name) for name in checkpoint.names()}
    return reference.compare(name, weights, path.stat().st_size, seconds)


def show(r: Accuracy) -> None:
    print(
        f"{r.name}: {r.bits:.2f} bits ({r.megabytes:.1f} MB), KL {r.kl_mean:.4f} +- {r.kl_standard_error:.4f}, "
        f"p99 {r.kl_p99:.3f}, same token {r.same_top:.4f}, perplexity {r.perplexity:.3f} of {r.perplexity_float32:.3f}",
        flush=True,
    )


def record(result: Accuracy, path: Path) -> None:
    """Put a result into the file, in place of one of the same name."""
    held = json.loads(path.read_text()) if path.is_file() else []
    others = [other for other in held if other["name"] != result.name]
    path.write_text(json.dumps([*others, asdict(result)], indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a folder with a float32 or 16-bit checkpoint of a Llama")
    parser.add_argument("names", nargs="+", metavar="SCHEME")
    parser.add_argument("--scratch", type=Path, required=True, help="GGUF files and llama.cpp's environment")
    parser.add_argument("--positions", type=int, default=8192)
    parser.add_argument("--part", type=int, default=512, help="tokens that are read from an empty cache")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    reference = Reference(args.model, args.positions, args.part)
    for name in args.names:
        measure = llama_cpp_accuracy if name.startswith(f"{LLAMA_CPP}:") else our_accuracy
        result = measure(reference, name, args.scratch)
        show(result)
        record(result, args.output)


if __name__ == "__main__":
    main()
