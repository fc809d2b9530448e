"""SmolLM2 scheduled for a GPU, as loops on the CPU; ``python -m tests.e2e.smollm2_as_loops DIR`` compares 100 tokens.

DIR is SmolLM2's folder in q4f16_1 with a library for the CPU.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from mlc_runtime import LLM
from mlc_runtime.library import Library
from mlc_toolchain.chat_config import read_chat_config
from mlc_toolchain.compile import model_config
from mlc_toolchain.library_metadata import model_metadata
from model_zoo.registry import export_model
from quantization.schemes import get_scheme
from tests.compiler.backends.cuda.as_loops import build_as_loops

TARGET = Target("cuda:sm_80")
FUNCTIONS = ("embed", "prefill", "decode")  # those that ``answer`` calls
QUESTION = [{"role": "user", "content": "Explain why the sky is blue, in detail."}]


@dataclass(frozen=True)
class Answer:
    """Greedily chosen tokens, and the logits that each was chosen from, [tokens, vocabulary]."""

    tokens: list[int]
    logits: np.ndarray


def build(folder: Path, output: Path, orders: Sequence[bool] = (False, True)) -> list[Library]:
    """Libraries of the folder's model as loops over threads, one for each order: False is ascending, True descending.

    Activations are float16. The libraries are written to the folder ``output``.
    """
    chat = read_chat_config(folder)
    exported = export_model(model_config(chat, {}), get_scheme(chat.quantization), "float16")
    outputs = {descending: output / f"{descending}.so" for descending in orders}
    used = {name: f for name, f in exported.mod.functions.items() if isinstance(f, PrimFunc) or name in FUNCTIONS}
    mod = exported.mod.with_functions(used)
    build_as_loops(mod, TARGET, outputs, lambda mod: model_metadata(exported, chat.quantization, mod))
    return [Library(path) for path in outputs.values()]


def answer(folder: Path, library: Library | None, prompt: Sequence[int], count: int) -> Answer:
    """Generate ``count`` tokens after a prompt. library: by default, the folder's."""
    with LLM(folder, library, 1) as llm:
        session = llm.new_session()
        logits = [session.prefill(list(prompt)).copy()]
        tokens = [int(logits[0].argmax())]
        for _ in range(count - 1):
            logits.append(session.decode_step(tokens[-1]).copy())
            tokens.append(int(logits[-1].argmax()))
    return Answer(tokens, np.stack(logits))


def main(folder: Path, count: int = 100) -> None:
    """Print how far the answers of both thread orders agree with those of the CPU's library."""
    with LLM(folder) as llm:
        prompt = llm.chat_prompt(QUESTION)
    expected = answer(folder, None, prompt, count)
    with tempfile.TemporaryDirectory() as temporary:
        up, down = (answer(folder, library, prompt, count) for library in build(folder, Path(temporary)))
    print(f"both orders give the same bits: {np.array_equal(up.logits, down.logits)}")
    print(f"{count} tokens are those of the CPU: {up.tokens == expected.tokens}")
    print(f"largest difference of logits: {np.abs(up.logits - expected.logits).max():.3g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
