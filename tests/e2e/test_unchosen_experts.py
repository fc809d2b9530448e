"""A decode step of one sequence reads the weights of the chosen experts only: the others' pages are inaccessible."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mlc_runtime import LLM
from mlc_toolchain.compile import CompileOptions, compile_model
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
from mlc_toolchain.gen_config import GenConfigOptions, gen_config

HIDDEN, INNER, HEADS, TOKENS, EXPERTS = 128, 512, 4, 16, 8
CHOSEN = {0: (1, 4), 1: (2, 6)}
"""The experts of a token."""
PART_OF_NAME = ".moe.e"
NO_ACCESS = 0


def write_checkpoint(folder: Path) -> None:
    """One layer whose attention adds nothing, so that the router sees the token alone."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    router = np.zeros((EXPERTS, HIDDEN), np.float32)
    for token, chosen in CHOSEN.items():
        router[list(chosen), token] = 1
    layer, ones = "model.layers.0", np.ones(HIDDEN, np.float32)
    tensors = {
        "model.embed_tokens.weight": np.eye(TOKENS, HIDDEN, dtype=np.float32),
        "model.norm.weight": ones,
        f"{layer}.input_layernorm.weight": ones.copy(),
        f"{layer}.post_attention_layernorm.weight": ones.copy(),
        **{f"{layer}.self_attn.{name}_proj.weight": weight(HIDDEN, HIDDEN) for name in "qkv"},
        f"{layer}.self_attn.o_proj.weight": np.zeros((HIDDEN, HIDDEN), np.float32),
        f"{layer}.block_sparse_moe.gate.weight": router,
    }
    for expert in range(EXPERTS):
        for name, shape in {"w1": (INNER, HIDDEN), "w3": (INNER, HIDDEN), "w2": (HIDDEN, INNER)}.items():
            tensors[f"{layer}.block_sparse_moe.experts.{expert}.{name}.weight"] = weight(*shape)
    sizes = {"hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1, "vocab_size": TOKENS}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HIDDEN // HEADS}
    routing = {"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "tie_word_embeddings": True}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "mixtral", **sizes, **heads, **routing}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("experts")
    write_checkpoint(root / "source")
    convert_weight(ConvertOptions(str(root / "source"), "q4f16_1", root / "out"))
    gen_config(GenConfigOptions(str(root / "source"), "q4f16_1", root / "out"))
    compile_model(CompileOptions(root / "out", root / "out" / "lib.so", "cpu"))
    return root / "out"


def step(folder: str, allowed: int, token: int) -> None:
    """Decode ``token`` while the experts that ``allowed`` does not choose are inaccessible; prints their bytes and
    those that are inaccessible, which are whole pages. Ends the process without freeing memory."""
    model = LLM(folder, num_threads=1).model
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    total = hidden = 0
    for spec, array in zip(model.spec.params, model.params.arrays, strict=True):
        if PART_OF_NAME not in spec.name:
            continue
        assert array.shape[0] == EXPERTS
        size = array.nbytes // EXPERTS
        for expert in set(range(EXPERTS)) - set(CHOSEN[allowed]):
            begin = array.ctypes.data + expert * size
            first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
            length = (begin + size - first) // mmap.PAGESIZE * mmap.PAGESIZE
            total, hidden = total + size, hidden + max(0, length)
            if length > 0 and protect(ctypes.c_void_p(first), ctypes.c_size_t(length), NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect")
    print(total, hidden, flush=True)
    row = model.pool.add()
    model.pool.extend(row, 1)
    (embedding,) = model.call("embed", {"input_ids": np.array([token], np.int32)})
    places = {"token_seq": np.array([row], np.int32), "token_pos": np.zeros(1, np.int32)}
    (logits,) = model.call("decode", {"input_embed": embedding[None], **places})
    print(logits.argmax(), flush=True)
    os._exit(0)


@pytest.mark.parametrize("token", CHOSEN)
def test_a_step_needs_the_chosen_experts_alone(token: int, folder: Path) -> None:
    code = f"from tests.e2e.test_unchosen_experts import step; step({str(folder)!r}, 0, {token})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    total, hidden = map(int, done.stdout.splitlines()[0].split())
    assert hidden > 0.85 * total > 0, done.stderr
    is_allowed = token == 0
    assert done.returncode == (0 if is_allowed else -signal.SIGSEGV), done.stderr
    assert len(done.stdout.splitlines()) == (2 if is_allowed else 1)
