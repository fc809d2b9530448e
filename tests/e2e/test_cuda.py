"""Models for GPUs, from checkpoint to tokens: the library on a simulated driver, its kernels in the simulator.

float32 models: the CPU's tokens. float16 models compute in float16 on a GPU and in float32 on a CPU, so their logits
differ by ``rounding_error``, and a token may differ from the CPU's where two are that close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler.backends.cuda import images
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_runtime import LLM
from mlc_runtime.library import Library
from tests.e2e.building import SharedFolders, run_command
from tests.e2e.checkpoints import VOCAB

IDS = np.random.default_rng(3).integers(0, VOCAB, 40).tolist()
OTHER = np.random.default_rng(4).integers(0, VOCAB, 40).tolist()
WINDOW, EXPERTS = ("mistral-window", "q0f32"), ("mixtral", "q0f32")
ODD_SIZES = ("llama-odd-llama3", "q4f16_1")
LAYERS, ROUNDINGS_OF_A_LAYER = 2, 14  # norms, products and their weights, rotation, probabilities, attention, sums


def models(*names: tuple[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pair", names, indirect=True, ids="-".join)


@dataclass(frozen=True)
class Pair:
    """A model on the CPU and on a simulated GPU."""

    scheme: str
    cpu: LLM
    gpu: LLM
    driver: SimulatedDriver


@pytest.fixture(scope="module")
def compiled(
    shared: SharedFolders, tiny_folder: Callable[[str, str], Path]
) -> Callable[[str, str], tuple[Path, Library]]:
    """A function: name of a random model, quantization -> its folder and its library for sm_80, with PTX only."""

    def build(name: str, scheme: str) -> tuple[Path, Library]:
        source = tiny_folder(name, scheme)

        def make(folder: Path) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(images, "find_assembler", lambda: None)  # the simulator runs PTX
                run_command("compile", source, "--device", "cuda:sm_80", "-o", folder / "lib.so")

        return source, Library(shared.get(f"{name}-{scheme}-sm_80", make) / "lib.so")

    return build


@pytest.fixture(scope="module")
def pair(compiled: Callable[[str, str], tuple[Path, Library]], request: pytest.FixtureRequest) -> Iterator[Pair]:
    folder, library = compiled(*request.param)
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        with ExitStack() as opened:
            cpu = opened.enter_context(LLM(folder, num_threads=1))
            yield Pair(request.param[1], cpu, opened.enter_context(LLM(folder, library)), driver)
            assert driver.fault is None
        assert (driver.objects, driver.allocations) == ({}, {})


def rounding_error(pair: Pair, logits: np.ndarray) -> float:
    """A bound of the difference of logits on GPU and CPU: six standard deviations.

    Each value on the way to a logit has a relative error of 2**-11 when it is rounded to float16; independent errors
    add up as the root of their number.
    """
    if pair.scheme == "q0f32":
        return 3e-5
    return float(6 * logits.std() * 2**-11 * math.sqrt(LAYERS * ROUNDINGS_OF_A_LAYER))


def assert_same(pair: Pair, compute: Callable[[LLM], Sequence[np.ndarray]]) -> None:
    """Assert that logits, computed on both machines, are equal within the rounding error."""
    expected, got = np.array(compute(pair.cpu)), np.array(compute(pair.gpu))
    np.testing.assert_allclose(got, expected, rtol=0, atol=rounding_error(pair, expected))


@models(WINDOW, ODD_SIZES)
def test_logits_of_every_position(pair: Pair) -> None:
    """40 tokens: more than a call takes, and more than mistral's window."""
    assert_same(pair, lambda llm: llm.logits(IDS))


@models(EXPERTS)
def test_experts(pair: Pair) -> None:
    """A prompt, and a step after it."""

    def compute(llm: LLM) -> list[np.ndarray]:
        session = llm.new_session()
        return [session.prefill(IDS[:20]).copy(), session.decode_step(IDS[20]).copy()]

    assert_same(pair, compute)


@models(WINDOW)
def test_tokens_are_those_of_the_cpu(pair: Pair) -> None:
    """Greedy, sampled and with penalties; one prompt and a batch, of which one is longer than a call takes."""

    def tokens(llm: LLM) -> list[tuple[int, ...]]:
        prompts, drawn = [IDS[:26], OTHER[:3]], {"temperature": 0.8, "top_p": 0.9, "seed": 5}
        likely = llm.generate(prompts, max_tokens=2, temperature=0)
        penalties = {"presence_penalty": 1.5, "repetition_penalty": 1.3, "logit_bias": {3: 1.0}}
        results = [*likely, *llm.generate([OTHER[:2], IDS[:4]], max_tokens=2, **drawn, **penalties)]
        return [r.token_ids for r in (*results, llm.generate(OTHER[:5], max_tokens=2, **drawn))]

    assert tokens(pair.gpu) == tokens(pair.cpu)


@models(ODD_SIZES)
def test_greedy_tokens_are_likely_on_the_cpu(pair: Pair) -> None:
    prompts = [IDS[:26], OTHER[:3]]
    for prompt, result in zip(prompts, pair.gpu.generate(prompts, max_tokens=3, temperature=0), strict=True):
        logits = pair.cpu.logits([*prompt, *result.token_ids])[len(prompt) - 1 : -1]
        chosen = np.take_along_axis(logits, np.array(result.token_ids)[:, None], -1)
        assert np.max(logits.max(-1) - chosen[:, 0]) <= 2 * rounding_error(pair, logits)


@models(WINDOW, ODD_SIZES)
def test_shared_beginnings(pair: Pair) -> None:
    """A prompt in pieces, two sequences that share its beginning, and one that is cut."""

    def compute(llm: LLM) -> list[np.ndarray]:
        session = llm.new_session()
        found = [session.prefill(IDS[:18]).copy(), session.prefill(IDS[18:25]).copy()]
        fork = session.fork(20)
        found += [fork.prefill(OTHER[:2]).copy(), session.decode_step(IDS[25]).copy(), fork.decode_step(7).copy()]
        session.truncate(19)
        return [*found, session.prefill(OTHER[:5]).copy()]

    assert_same(pair, compute)


@models(WINDOW)
def test_streams_in_turns(pair: Pair) -> None:
    """Streams that share a beginning; their steps are recorded once and then replayed."""
    prompts = [IDS[:6], [*IDS[:5], 4]]
    sampling = pair.gpu.sampling(max_tokens=4, temperature=0)
    streams = [pair.gpu.stream(prompt, sampling) for prompt in prompts]
    pieces = [iter(stream) for stream in streams]
    for _ in range(5):
        for piece in pieces:
            next(piece, None)
    alone = [pair.cpu.generate(prompt, max_tokens=4, temperature=0).token_ids for prompt in prompts]
    assert [stream.result.token_ids for stream in streams] == alone
    assert pair.driver.calls["cuGraphLaunch"] > 6
