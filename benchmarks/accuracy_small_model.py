"""Train a small Llama from scratch, with a tokenizer of its own, for measuring quantization.

python benchmarks/accuracy_small_model.py OUTPUT_FOLDER

All its rows are multiples of 256 weights, so that llama.cpp's K types apply to every matrix. The training text is
docstrings of installed packages. Seeded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accuracy_texts import training_text
from accuracy_training import Facts, Run, train
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 0
VOCABULARY = 4096
BATCH, LENGTH, RATE = 8, 256, 2e-3
END = "<|endoftext|>"
TITLE = "Llama of 6 layers, 256 wide, trained from nothing"


def small_config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
    )


def trained_tokenizer(text: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on the text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(text.split("\n\n"), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--steps", type=int, default=500, help=f"of {BATCH * LENGTH} tokens")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    text = training_text()
    tokenizer = trained_tokenizer(text)
    model = LlamaForCausalLM(small_config())
    first, last = train(model, torch.tensor(tokenizer(text)["input_ids"]), Run(args.steps, BATCH, LENGTH, RATE))
    model.save_pretrained(args.output)
    tokenizer.save_pretrained(args.output)
    parameters = sum(p.numel() for p in model.parameters())
    Facts(TITLE, parameters, args.steps, args.steps * BATCH * LENGTH, first, last).save(args.output)


if __name__ == "__main__":
    main()
