"""Model folders with parts missing, damaged or of another model, and sizes beyond those compiled."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlc_cli.__main__ import main
from mlc_errors import MLCError, ResourceError, UsageError
from mlc_runtime import LLM, Library
from mlc_runtime.decoder import Decoder
from mlc_runtime.weights import TensorCache
from tests.e2e import oracle
from tests.e2e.building import SharedFolders, run_command
from tests.e2e.checkpoints import VOCAB, random_model

NAME = "llama-bias-tied"
OVERRIDES = "context_window_size=41;prefill_chunk_size=2;max_batch_size=3"
IDS = np.random.default_rng(5).integers(0, VOCAB, 42).tolist()


@pytest.fixture
def folder(tiny_folder: Callable[[str, str], Path], tmp_path: Path) -> Path:
    """A copy of a model folder that a test may damage."""
    return shutil.copytree(tiny_folder(NAME, "q0f32"), tmp_path / "model")


@pytest.fixture(scope="session")
def small(shared: SharedFolders, tiny_folder: Callable[[str, str], Path]) -> Path:
    """A folder whose library was compiled for smaller sizes than its configuration."""

    def make(folder: Path) -> None:
        shutil.copytree(tiny_folder(NAME, "q0f32"), folder, dirs_exist_ok=True)
        run_command("compile", folder, "--overrides", OVERRIDES, "-o", folder / "lib.so")

    return shared.get("small-context", make)


@pytest.mark.parametrize(
    ("name", "scheme", "problem"),
    [
        ("gpt2-tied", "q0f32", "transformer.wte.weight is missing"),
        ("llama-odd-llama3", "q0f32", r"model.embed_tokens.weight is float32 \[1003, 100\]; .* \[1003, 84\]"),
        (NAME, "q4f16_1", "model.embed_tokens.q_weight is missing"),
    ],
)
def test_a_library_of_another_model(folder: Path, tiny_folder, name: str, scheme: str, problem: str):
    library = tiny_folder(name, scheme) / "lib.so"
    with pytest.raises(MLCError, match=r"^mlc-chat-config.json has .*; the library was compiled for "):
        LLM(folder, library)
    with pytest.raises(MLCError, match=rf"parameters of the library do not fit the weights\n  in   {problem}"):
        Decoder(Library(library), TensorCache(folder))


def spoil(path: Path, change: str) -> None:
    if change == "missing":
        path.unlink()
    elif change == "flipped":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    else:
        path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("params_shard_0.bin", "missing", "error: params_shard_0.bin is missing"),
        ("params_shard_0.bin", "truncated", "error: params_shard_0.bin has 926495 bytes; the index says 926496"),
        ("tensor-cache.json", "missing", "error: the folder has no weights: no tensor-cache.json"),
        ("tensor-cache.json", "truncated", "error: the index of the weights is damaged"),
        ("lib.so", "flipped", "error: the library is damaged: it does not have its checksum"),
        ("lib.so", "truncated", "error: the library is truncated or damaged: it ends inside a table"),
        ("tokenizer.json", "missing", r"error: .*tokenizer\.json is missing"),
        ("tokenizer.json", "truncated", "error: tokenizer.json is not readable"),
        ("mlc-chat-config.json", "missing", "error: cannot read .*mlc-chat-config.json: No such file"),
        ("mlc-chat-config.json", "truncated", "error: mlc-chat-config.json is malformed"),
    ],
)
def test_a_spoiled_folder_is_one_message(folder: Path, capsys, file: str, change: str, message: str):
    spoil(folder / file, change)
    assert main(["generate", str(folder), "--prompt", "a", "--max-tokens", "1"]) == 1
    error = capsys.readouterr().err
    assert re.match(message, error) and "Traceback" not in error


def test_a_prompt_beyond_a_small_context(small: Path, capsys):
    with LLM(small) as llm:
        expected = oracle.logits(random_model(NAME), IDS[:41])
        np.testing.assert_allclose(llm.logits(IDS[:41]), expected, rtol=0, atol=1e-4)
        with pytest.raises(ResourceError, match="the context is full: 42 tokens; expected at most 41"):
            llm.logits(IDS)
        with pytest.raises(UsageError, match="the prompt has 42 tokens; the context holds 41"):
            llm.generate(IDS)
    assert main(["generate", str(small), "--prompt", "x" * 42]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: the prompt has 42 tokens; the context holds 41",
        "  hint shorten the prompt, or compile with a larger context_window_size",
        "  more mlc_cli explain MLC2",
    ]


def test_more_sequences_than_a_library_takes_are_split(small: Path):
    with LLM(small) as llm:
        prompts = [IDS[:n] for n in (3, 17, 1, 8, 2)]
        alone = [llm.generate(p, max_tokens=9, temperature=0).token_ids for p in prompts]
        assert [r.token_ids for r in llm.generate(prompts, max_tokens=9, temperature=0)] == alone


def test_the_library_refuses_sizes_beyond_its_own(small: Path):
    """Calls with larger sizes, for which its workspace is too small, raise ValueError."""
    four, rows = np.arange(4, dtype=np.int32), np.empty((4, VOCAB), np.float32)
    with LLM(small) as llm:
        embedding = llm.model.embedding_buffer(4)
        inputs = {"input_embed": embedding[None, :3], "token_seq": 0 * four[:3], "token_pos": four[:3]}
        with pytest.raises(ValueError, match="batch_verify: seq_len is 3; the library was compiled for at most 2"):
            llm.model.bind("batch_verify", inputs, [rows[None, :3]])()
        inputs = {"input_embed": embedding[:, None], "token_seq": four, "token_pos": 0 * four}
        with pytest.raises(ValueError, match="batch_decode: batch_size is 4; the library was compiled for at most 3"):
            llm.model.bind("batch_decode", inputs, [rows[:, None]])()
