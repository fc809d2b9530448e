"""The C program of examples/c that runs a model: the tokens of its answers are those of the Python runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mlc_runtime import LLM

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "c"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("c") / "chat"
    run("cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", path, EXAMPLE / "chat.c", "-ldl")
    return path


def run(*command: object, text: str = "", status: int = 0) -> tuple[str, str]:
    """The output and the messages of a command."""
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1])}
    words = [str(word) for word in command]
    done = subprocess.run(words, env=environment, input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


def describe(folder: Path, to: Path) -> Path:
    to.write_text(run(sys.executable, EXAMPLE / "describe_model.py", folder)[0])
    return to


def words(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))


def test_prompts_of_several_calls(
    program: Path, tiny_folder: Callable[[str, str], Path], opened: Callable[[Path, int], LLM], tmp_path: Path
):
    """The calls take 24 tokens; the answer ends where the context does."""
    folder = tiny_folder("llama-odd-llama3", "q0f32")
    prompt = list(range(3, 53))
    output, message = run(program, folder, describe(folder, tmp_path / "model.txt"), text=words(prompt), status=1)
    expected = opened(folder, 1).generate(prompt, max_tokens=-1, temperature=0, ignore_eos=True).token_ids
    assert [int(word) for word in output.split()] == list(expected)
    assert message == "error: conversation: the context is full\n"


def test_smollm2(
    program: Path, smollm2_folder: Callable[[str], Path], opened: Callable[[Path, int], LLM], tmp_path: Path
):
    folder = smollm2_folder("q4f16_1")
    llm, index = opened(folder, 1), describe(folder, tmp_path / "model.txt")
    first = llm.chat_prompt(QUESTION)
    answer = llm.chat(QUESTION, max_tokens=40, temperature=0)
    following = [*QUESTION, {"role": "assistant", "content": answer.text}, {"role": "user", "content": "And of Spain?"}]
    whole, end = llm.chat_prompt(following), llm.tokenizer.encode("<|im_end|>", add_special_tokens=False)
    known = [*first, *answer.token_ids, *end]
    assert whole[: len(known)] == known
    lines = run(program, folder, index, text=f"{words(first)}\n{words(whole[len(known) :])}\n")[0].splitlines()
    second = llm.chat(following, temperature=0)
    assert lines == [words([*reply.token_ids, *end]) for reply in (answer, second)]
    text = run(sys.executable, EXAMPLE / "tokens.py", folder, text=lines[0])[0]
    assert text.startswith(answer.text) and "Paris" in text


def test_wrong_ids(program: Path, tiny_folder: Callable[[str, str], Path], tmp_path: Path):
    folder = tiny_folder("llama-odd-llama3", "q0f32")
    index = describe(folder, tmp_path / "model.txt")
    assert run(program, folder, index, text="5 1003", status=1)[1] == "error: 1003: outside of the vocabulary\n"
    assert run(program, tmp_path, index, text="5", status=1)[1].startswith(f"{tmp_path}/lib.so: cannot open")
