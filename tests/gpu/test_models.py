"""Models on a GPU against the same models on the CPU. tests/e2e/test_cuda.py runs models on a simulated GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mlc_runtime import LLM
from tests.e2e.building import SharedFolders, run_command
from tests.e2e.checkpoints import VOCAB, configs
from tests.gpu.executors import Executor

pytestmark = pytest.mark.gpu

IDS = np.random.default_rng(3).integers(0, VOCAB, 90).tolist()
QUESTION = [{"role": "user", "content": "Explain why the sky is blue, in detail."}]


@contextmanager
def on_gpu(folder: Path, shared: SharedFolders, device: Executor) -> Iterator[LLM]:
    """The model of a folder, compiled for the GPU."""
    made = shared.get(
        f"{folder.name}-gpu", lambda f: run_command("compile", folder, "--device", device.target, "-o", f / "lib.so")
    )
    with LLM(folder, device.opened(made / "lib.so")) as llm:
        yield llm


def assert_likely(llm: LLM, prompt: list[int], tokens: tuple[int, ...], margin: float) -> None:
    """Each token's logit on the CPU is the highest after those before it, or less than ``margin`` below it."""
    logits = llm.logits([*prompt, *tokens])[len(prompt) - 1 : -1]
    below = logits.max(-1) - logits[np.arange(len(tokens)), list(tokens)]
    assert below.max() <= margin, f"token {below.argmax()} is {below.max()} below the most likely one"


@pytest.mark.parametrize("scheme", ["q0f32", "q0f16", "q0bf16", "q4f16_1", "q3f16_1"])
@pytest.mark.parametrize("name", configs())
def test_logits_and_tokens_of_small_models(
    name: str, scheme: str, device: Executor, shared: SharedFolders, tiny_folder: Callable[[str, str], Path]
) -> None:
    """Activations have the model's dtype on a GPU and float32 on the CPU: the tolerance is for their rounding."""
    tolerance = {"q0f32": 1e-4, "q0bf16": 5e-2}.get(scheme, 8e-3)
    folder = tiny_folder(name, scheme)
    with LLM(folder) as cpu, on_gpu(folder, shared, device) as gpu:
        logits = cpu.logits(IDS)
        error = tolerance * np.abs(logits).max()
        np.testing.assert_allclose(gpu.logits(IDS), logits, rtol=0, atol=error)
        for prompt in (IDS[:1], IDS[:13], IDS[:40]):
            tokens = gpu.generate(prompt, max_tokens=30, temperature=0).token_ids
            assert len(tokens) == 30
            assert_likely(cpu, prompt, tokens, 2 * error)


def test_a_batch_and_its_parts_are_equally_likely(
    device: Executor, shared: SharedFolders, tiny_folder: Callable[[str, str], Path]
) -> None:
    folder = tiny_folder("llama-odd-llama3", "q4f16_1")
    prompts = [IDS[:13], IDS[20:22], IDS[:33], IDS[40:80], IDS[5:6]]
    with LLM(folder) as cpu, on_gpu(folder, shared, device) as gpu:
        results = gpu.generate(prompts, max_tokens=20, temperature=0)
        for prompt, result in zip(prompts, results, strict=True):  # type: ignore[arg-type]
            assert_likely(cpu, prompt, result.token_ids, 0.1)


def test_replayed_graphs_give_the_same_tokens(
    device: Executor, shared: SharedFolders, tiny_folder: Callable[[str, str], Path]
) -> None:
    """The first answer's steps are recorded, those of the later ones replayed."""
    with on_gpu(tiny_folder("llama-odd-llama3", "q4f16_1"), shared, device) as gpu:
        answers = [gpu.generate(IDS[:9], max_tokens=40, temperature=0).token_ids for _ in range(4)]
        sampled = [gpu.generate(IDS[:9], max_tokens=40, temperature=1.0, seed=7).token_ids for _ in range(3)]
    assert len(set(answers)) == len(set(sampled)) == 1


@pytest.mark.parametrize("scheme", ["q4f16_1", "q0f16", "q0f32"])
def test_smollm2(scheme: str, device: Executor, shared: SharedFolders, smollm2_folder: Callable[[str], Path]) -> None:
    """The text of the CPU, up to tokens that are equally likely within the error of 16-bit activations."""
    folder = smollm2_folder(scheme)
    with LLM(folder) as cpu, on_gpu(folder, shared, device) as gpu:
        prompt = cpu.chat_prompt(QUESTION)
        gpu_logits, cpu_logits = gpu.logits(prompt), cpu.logits(prompt)
        assert (gpu_logits - cpu_logits).std() < (1e-3 if scheme == "q0f32" else 3e-2)
        result = gpu.chat(QUESTION, max_tokens=100, temperature=0)
        assert_likely(cpu, prompt, result.token_ids, 1e-2 if scheme == "q0f32" else 0.2)
        assert "light" in result.text
        on_cpu = cpu.chat(QUESTION, max_tokens=100, temperature=0)
        same = [a == b for a, b in zip(result.token_ids, on_cpu.token_ids, strict=False)]
        assert all(same[:5])


def test_too_little_memory_for_a_model(
    device: Executor, shared: SharedFolders, smollm2_folder: Callable[[str], Path]
) -> None:
    """Another array takes all but 50 MB."""
    folder = smollm2_folder("q0f16")
    with on_gpu(folder, shared, device) as gpu:
        memory = gpu.model.context.memory
        held = memory.empty((int(memory.available_bytes / 0.9) - (50 << 20),), np.dtype(np.uint8))
        with pytest.raises(Exception, match="room|memory"):
            LLM(folder, device.opened(gpu.library.path)).generate([1, 2, 3], max_tokens=2)
        del held
