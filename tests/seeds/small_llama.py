"""A small Llama checkpoint with random weights, its tokenizer, and the results of transformers."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_attention_heads": 6,
    "num_hidden_layers": 3,
    "vocab_size": 101,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
PROMPT = [1, 17, 4, 99, 23, 42, 5, 5, 60, 8, 71, 3, 90, 12, 33, 2, 64, 7]
GENERATED = 6


def save(folder: Path) -> LlamaForCausalLM:
    """Write the checkpoint to ``folder``; returns the model, in float32."""
    torch.manual_seed(18)  # the tokens that follow the prompt are all different
    config = LlamaConfig(**SIZES, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half() if parameter.ndim == 1 else (parameter * 5).half())
    weights = {name: value.half().contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors")
    return model


def greedy(model: LlamaForCausalLM) -> tuple[torch.Tensor, list[int]]:
    """The logits after the prompt, [1, 1, V], and the greedily chosen tokens that follow."""
    ids = list(PROMPT)
    first = None
    for _ in range(GENERATED):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[:, -1:]
        first = logits if first is None else first
        ids.append(int(logits.argmax()))
    assert first is not None
    return first, ids[len(PROMPT) :]


class AutoTokenizer:
    """A fake tokenizer: every prompt is ``PROMPT``, and the last generated token ends the text."""

    eos_token_id: int

    @staticmethod
    def from_pretrained(folder: Path) -> AutoTokenizer:
        tokenizer = AutoTokenizer()
        tokenizer.eos_token_id = int((folder / "eos.txt").read_text())
        return tokenizer

    def apply_chat_template(self, messages: list[dict[str, str]]) -> list[int]:
        return list(PROMPT)

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))
