"""Draft heads with random weights, converted and compiled, and in torch, as pairs of arrays: (got, expected)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

from mlc_runtime import Library
from mlc_runtime.decoder import HIDDEN_STATES
from mlc_runtime.model import CompiledModel
from mlc_runtime.weights import TensorCache
from mlc_toolchain.compile import CompileOptions, compile_model
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
from mlc_toolchain.gen_config import GenConfigOptions, gen_config
from mlc_toolchain.model_sizes import SizeOverrides
from tests.model_zoo import mtp_reference
from tests.model_zoo.architecture_cases import COMMON, LLAMA_LIKE, VOCAB
from tests.model_zoo.comparisons import Pair
from tests.runtime.fake_library import byte_tokenizer
from tests.unoptimized import without_llvm_optimizations

SIZE, TOKENS = LLAMA_LIKE["hidden_size"], 11
RNG = np.random.default_rng(9)


def of_head(name: str, folder: Path, optimized: bool = False) -> Iterator[Pair]:
    """Results of all functions of an architecture's draft head. optimized: by LLVM."""
    with nullcontext() if optimized else without_llvm_optimizations():
        yield from COMPARISONS[name](name, folder)


def build(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], name: str, folder: Path) -> CompiledModel:
    output = made(config, tensors, name, folder)
    compile_model(CompileOptions(output, output / "lib.so", device="cpu"))
    return CompiledModel(Library(output / "lib.so"), TensorCache(output), num_threads=2)


def made(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], name: str, folder: Path) -> Path:
    """The folder of a model, without a library."""
    source, output = write_source(config, tensors, folder), folder / "output"
    convert_weight(ConvertOptions(str(source), "q0f32", output, name))
    sizes = SizeOverrides(prefill_chunk_size=16, max_batch_size=5)
    gen_config(GenConfigOptions(str(source), "q0f32", output, name, sizes=sizes))
    return output


def write_source(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], folder: Path) -> Path:
    """A checkpoint with a tokenizer."""
    source = folder / "source"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(config))
    stored = {key: tensor.detach().clone().contiguous() for key, tensor in tensors.items()}
    save_file(stored, source / "model.safetensors")
    byte_tokenizer().save(str(source / "tokenizer.json"))
    return source


def _of_eagle(name: str, folder: Path) -> Iterator[Pair]:
    """A head whose layers are those of transformers."""
    torch.manual_seed(5)
    llama = transformers.LlamaModel(transformers.LlamaConfig(**{**COMMON, **LLAMA_LIKE})).eval()
    fc = torch.nn.Linear(2 * SIZE, SIZE)
    with torch.no_grad():
        for parameter in llama.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.2 + (parameter.ndim == 1))
    llama.layers[0].input_layernorm = llama.norm = torch.nn.Identity()
    tensors = llama.state_dict() | {f"fc.{name}": tensor for name, tensor in fc.state_dict().items()}
    model = build({**llama.config.to_dict(), "model_type": "llama"}, tensors, name, folder)

    ids = RNG.integers(3, VOCAB, TOKENS).astype(np.int32)
    states = RNG.normal(size=(TOKENS, SIZE)).astype(np.float32)
    with torch.no_grad():
        embedded = llama.embed_tokens(torch.from_numpy(ids).long())
        fused = fc(torch.cat([embedded, torch.from_numpy(states)], dim=-1))
        expected = llama(inputs_embeds=fused[None], use_cache=False).last_hidden_state[0].numpy()

    (embedding,) = model.call("embed", {"input_ids": ids})
    yield embedding, embedded.numpy()
    yield from _of_layers(model, embedding, states, fused.numpy(), expected)


def _of_layers(
    model: CompiledModel, embedding: np.ndarray, states: np.ndarray, fused: np.ndarray, expected: np.ndarray
) -> Iterator[Pair]:
    """What layers make of embeddings and hidden states, float32 [TOKENS, D]: of a prompt, then of steps."""
    (joined,) = model.call("fuse_embed_hidden_states", {"input_embed": embedding, "hidden_states": states})
    yield joined, fused
    row, steps = model.pool.add(), 3
    places = {"token_seq": np.full(TOKENS, row, np.int32), "token_pos": np.arange(TOKENS, dtype=np.int32)}
    model.pool.extend(row, TOKENS)
    prompt = {name: place[:-steps] for name, place in places.items()}
    (hidden,) = model.call(HIDDEN_STATES, {"hidden_states": joined[None, :-steps].copy(), **prompt})
    yield hidden[0], expected[:-steps]
    for t in range(TOKENS - steps, TOKENS):
        step = {name: place[t : t + 1] for name, place in places.items()}
        (hidden,) = model.call(
            "batch_decode_to_last_hidden_states", {"hidden_states": joined[None, t : t + 1].copy(), **step}
        )
        yield hidden[0], expected[t : t + 1]


def _of_medusa(name: str, folder: Path) -> Iterator[Pair]:
    """Names are those of the published files, ``HEAD.LAYER.linear.weight``."""
    heads, blocks = 3, 2
    tensors = {}
    for head in range(heads):
        for block in range(blocks):
            tensors[f"{head}.{block}.linear.weight"] = torch.randn(SIZE, SIZE) * 0.2
            tensors[f"{head}.{block}.linear.bias"] = torch.randn(SIZE)
        tensors[f"{head}.{blocks}.weight"] = torch.randn(VOCAB, SIZE) * 0.2
    config = {"hidden_size": SIZE, "vocab_size": VOCAB, "medusa_num_heads": heads, "medusa_num_layers": blocks}
    model = build({**config, "base_model_name_or_path": "a/b"}, tensors, name, folder)
    hidden = RNG.normal(size=(4, SIZE)).astype(np.float32)
    results = model.call("get_logits", {"hidden_states": hidden})
    assert len(results) == heads
    for head, got in enumerate(results):
        x = torch.from_numpy(hidden)
        for block in range(blocks):
            block_name = f"{head}.{block}.linear"
            x = x + torch.nn.functional.silu(x @ tensors[f"{block_name}.weight"].T + tensors[f"{block_name}.bias"])
        yield got, (x @ tensors[f"{head}.{blocks}.weight"].T).numpy()


def _of_mtp(name: str, folder: Path) -> Iterator[Pair]:
    """Hidden states, and the logits that the model's output head makes of them."""
    reference = mtp_reference.Reference(name.removesuffix("_mtp"))
    head = build(*reference.checkpoint(folder), "mtp", folder)
    assert head.spec.model_type == name
    ids = RNG.integers(3, VOCAB, TOKENS).tolist()
    states = torch.from_numpy(RNG.normal(size=(TOKENS, reference.config.hidden_size)).astype(np.float32))
    expected = reference.hidden(ids, states)
    logits = reference.logits(expected).numpy()
    assert np.abs(logits[1:] - logits[:-1]).max() > 0.3  # far above the tolerance
    fused, embedding = reference.fuse(ids, states).numpy(), reference.embed(ids).numpy()
    joined, *layers = _of_layers(head, embedding, reference.as_given(states).numpy(), fused, expected.numpy())
    yield from (joined, *layers)
    hidden = np.concatenate([got for got, _ in layers])
    yield reference.logits(torch.from_numpy(hidden)).numpy(), logits


COMPARISONS = {
    "eagle": _of_eagle,
    "medusa": _of_medusa,
    **{f"{name}_mtp": _of_mtp for name in mtp_reference.NAMES},
}
"""By architecture."""
