"""Draft heads, from checkpoint to compiled functions, against torch: EAGLE with layers of transformers, and Medusa."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
from tests.model_zoo.architecture_cases import COMMON, LLAMA_LIKE, VOCAB
from tests.model_zoo.test_architectures import TOLERANCE, close
from tests.runtime.fake_library import byte_tokenizer

NAMES = ("eagle", "medusa")
SIZE, TOKENS = LLAMA_LIKE["hidden_size"], 11
RNG = np.random.default_rng(9)


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


def test_eagle(tmp_path: Path) -> None:
    torch.manual_seed(5)
    llama = transformers.LlamaModel(transformers.LlamaConfig(**{**COMMON, **LLAMA_LIKE})).eval()
    fc = torch.nn.Linear(2 * SIZE, SIZE)
    with torch.no_grad():
        for parameter in llama.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.2 + (parameter.ndim == 1))
    llama.layers[0].input_layernorm = llama.norm = torch.nn.Identity()
    tensors = llama.state_dict() | {f"fc.{name}": tensor for name, tensor in fc.state_dict().items()}
    model = build({**llama.config.to_dict(), "model_type": "llama"}, tensors, "eagle", tmp_path)

    ids = RNG.integers(3, VOCAB, TOKENS).astype(np.int32)
    states = RNG.normal(size=(TOKENS, SIZE)).astype(np.float32)
    with torch.no_grad():
        embedded = llama.embed_tokens(torch.from_numpy(ids).long())
        fused = fc(torch.cat([embedded, torch.from_numpy(states)], dim=-1))
        expected = llama(inputs_embeds=fused[None], use_cache=False).last_hidden_state[0].numpy()

    (embedding,) = model.call("embed", {"input_ids": ids})
    check_layers(model, embedding, states, fused.numpy(), expected)


def check_layers(
    model: CompiledModel, embedding: np.ndarray, states: np.ndarray, fused: np.ndarray, expected: np.ndarray
) -> np.ndarray:
    """Compare what layers make of embeddings and hidden states, float32 [TOKENS, D]: of a prompt, then of steps.

    Returns the new hidden states.
    """
    (joined,) = model.call("fuse_embed_hidden_states", {"input_embed": embedding, "hidden_states": states})
    close(joined, fused, TOLERANCE)
    row, steps = model.pool.add(), 3
    places = {"token_seq": np.full(TOKENS, row, np.int32), "token_pos": np.arange(TOKENS, dtype=np.int32)}
    model.pool.extend(row, TOKENS)
    prompt = {name: place[:-steps] for name, place in places.items()}
    (hidden,) = model.call(HIDDEN_STATES, {"hidden_states": joined[None, :-steps].copy(), **prompt})
    results = [hidden[0]]
    for t in range(TOKENS - steps, TOKENS):
        step = {name: place[t : t + 1] for name, place in places.items()}
        (hidden,) = model.call(
            "batch_decode_to_last_hidden_states", {"hidden_states": joined[None, t : t + 1].copy(), **step}
        )
        results.append(hidden[0])
    close(np.concatenate(results), expected, TOLERANCE)
    return np.concatenate(results)


def test_medusa(tmp_path: Path) -> None:
    """Names are those of the published files, ``HEAD.LAYER.linear.weight``."""
    heads, blocks = 3, 2
    tensors = {}
    for head in range(heads):
        for block in range(blocks):
            tensors[f"{head}.{block}.linear.weight"] = torch.randn(SIZE, SIZE) * 0.2
            tensors[f"{head}.{block}.linear.bias"] = torch.randn(SIZE)
        tensors[f"{head}.{blocks}.weight"] = torch.randn(VOCAB, SIZE) * 0.2
    config = {"hidden_size": SIZE, "vocab_size": VOCAB, "medusa_num_heads": heads, "medusa_num_layers": blocks}
    model = build({**config, "base_model_name_or_path": "a/b"}, tensors, "medusa", tmp_path)
    hidden = RNG.normal(size=(4, SIZE)).astype(np.float32)
    results = model.call("get_logits", {"hidden_states": hidden})
    assert len(results) == heads
    for head, got in enumerate(results):
        x = torch.from_numpy(hidden)
        for block in range(blocks):
            name = f"{head}.{block}.linear"
            x = x + torch.nn.functional.silu(x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"])
        close(got, (x @ tensors[f"{head}.{blocks}.weight"].T).numpy(), TOLERANCE)
