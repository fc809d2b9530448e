"""The tutorial that adds GPT-2: its code and commands run as printed, on the CPU, with a small checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers

from mlc_runtime.llm import LLM
from tests.seeds.notebook import Ran, run

CPU = {
    "python -m mlc_llm.testing.debug_chat --model": "python -m mlc_cli debug_chat",
    "--generate-len 5": "--generate-len 5 --prompt",
    "python -m mlc_llm ": "python -m mlc_cli ",
    "--device cuda": "--device cpu",
    "f0_take3": "f0_fused_take_astype",  # the kernel that looks up the embedding
}
IDS = [7, 30, 2, 41, 9]
VOCABULARY = 50257


def small_gpt2() -> transformers.GPT2LMHeadModel:
    torch.manual_seed(5)
    config = transformers.GPT2Config(n_embd=24, n_head=3, n_layer=2, n_positions=64, vocab_size=VOCABULARY)
    return transformers.GPT2LMHeadModel(config).eval()


def tokenizer() -> tokenizers.Tokenizer:
    """A tokenizer with GPT-2's number of tokens: bytes, names, and the end-of-text token last."""
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(f"name{i}" for i in range(VOCABULARY - 257))]
    made = tokenizers.Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpt2")


@pytest.fixture(scope="module")
def ran(folder: Path) -> Iterator[Ran]:
    checkpoint = folder / "dist" / "models" / "gpt2"
    checkpoint.mkdir(parents=True)
    small_gpt2().save_pretrained(checkpoint)
    tokenizer().save(str(checkpoint / "tokenizer.json"))
    yield run("add_gpt2", given={"temp_dir": folder}, replaced=CPU)


def test_counts(ran: Ran):
    assert ran.counts() == {
        "run": 7,
        "environment": 1,
        "ipython": 3,
        "fragment": 2,
        "network": 1,
    }


def test_parameters_print_as_shown(ran: Ran):
    """The vocabulary is a number here; MLC LLM's is the symbolic size ``vocab_size``."""
    shown = ran.shown("export shown").replace("[vocab_size, ", "[50257, ")
    assert ran.output["export"].startswith(shown.rstrip("\n"))
    assert ran.output["export"].count("\n") == 2 + 12 * 12 + 2 + 1
    assert set(ran.after["export"]["mod"]) >= {"embed", "prefill", "decode", "batch_prefill", "batch_decode"}


def test_functions_of_a_loader_make_parameters(ran: Ran):
    """The parameters of the tutorial's layer; the others have the names of the checkpoint in this mapping."""
    mapping, parameters = ran.after["loader"]["mapping"], ran.after["loader"]["named_parameters"]
    mapping.add_unused("h.0.attn.bias")
    made = [name for rule in mapping.rules for name in rule.targets]
    assert len(made) == 4
    shapes = {name: parameters[name].shape for name in made}
    rng = np.random.default_rng(4)
    stored = {n.removeprefix("transformer."): rng.random(s[::-1], np.float32) for n, s in shapes.items()}
    plan = mapping.resolve(shapes, {n: a.shape for n, a in stored.items()} | {"h.0.attn.bias": (1,)})
    for production in plan.productions:
        value = production.value.evaluate(stored.__getitem__)
        np.testing.assert_array_equal(value, stored[production.name.removeprefix("transformer.")].T)


def test_commands_make_a_model_that_runs(ran: Ran, folder: Path):
    model = folder / "dist" / "gpt2-q0f16-MLC"
    assert {"mlc-chat-config.json", "gpt2-q0f16-cuda.so"} <= {path.name for path in model.iterdir()}
    got = LLM(model, model / "gpt2-q0f16-cuda.so").logits(IDS)
    with torch.no_grad():
        expected = small_gpt2()(torch.tensor([IDS])).logits[0].numpy()
    np.testing.assert_allclose(np.asarray(got).reshape(len(IDS), -1), expected, rtol=0.02, atol=0.02)


def test_arguments_of_a_kernel_are_in_a_file(ran: Ran):
    data = ran.after["dumped values"]["data"]
    table, ids, result = (data[f"arg_{i}"] for i in range(3))
    assert (table.dtype, ids.shape) == (np.float16, (1,))
    assert np.array_equal(table[ids].astype(np.float32), result)
    assert "arg_2" in ran.output["dumped values"]
