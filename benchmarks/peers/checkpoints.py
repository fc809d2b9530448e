"""Write the Hugging Face folders from which every engine's files are made; runs in transformers' environment.

python -m peers.checkpoints smollm2 MODEL.gguf FOLDER
python -m peers.checkpoints llama-1.1b FOLDER_WITH_TOKENIZER FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
)

from peers.shapes import CONTEXT, REFERENCE, REFERENCE_STEPS, SHAPES

TEXT = "January, February, March, April, May,"  # every working engine continues it


def smollm2(gguf: Path, folder: Path) -> None:
    """Write the checkpoint in a GGUF as float16, with the context length of the benchmark."""
    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = LlamaConfig.from_dict({**loaded.config.to_dict(), "rms_norm_eps": 1e-5})
    del config.quantization_config  # of the GGUF
    model = LlamaForCausalLM(config)
    model.load_state_dict(loaded.state_dict())
    model.tie_weights()
    _save(model, AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name), folder)


def llama_1_1b(tokenizer_folder: Path, folder: Path) -> None:
    """Write random weights of the 1.1 B Llama shape, the same in every run."""
    shape, tokenizer = SHAPES["llama-1.1b"], AutoTokenizer.from_pretrained(tokenizer_folder)
    config = LlamaConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocabulary,
        rms_norm_eps=1e-5,
        tie_word_embeddings=shape.tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.02)
    _save(model, tokenizer, folder)


def _save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    model.config.max_position_embeddings = CONTEXT
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / REFERENCE).write_text(json.dumps(_continuation(model.float(), tokenizer)))


@torch.inference_mode()
def _continuation(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[int]]:
    """A prompt, and the tokens that follow it greedily in float32."""
    prompt = tokenizer(TEXT)["input_ids"]
    ids = list(prompt)
    for _ in range(REFERENCE_STEPS):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return {"prompt": prompt, "tokens": ids[len(prompt) :]}


if __name__ == "__main__":
    name, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    {"smollm2": smollm2, "llama-1.1b": llama_1_1b}[name](source, target)
