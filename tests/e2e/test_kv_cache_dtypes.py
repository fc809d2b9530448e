"""Models with a KV cache of int8 codes with scales, or of float8: prompts, steps, batches, forks; on a CPU and a
GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler.backends.cuda import images
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_runtime import LLM
from mlc_runtime.library import Library
from tests.e2e.building import SharedFolders, run_command
from tests.e2e.checkpoints import VOCAB

IDS = np.random.default_rng(3).integers(0, VOCAB, 60).tolist()
OTHER = np.random.default_rng(4).integers(0, VOCAB, 60).tolist()
SAME_CODES = 2e-3  # a sum that is rounded differently may give a code's neighbour
SHARE = {"int8": 0.02, "float8_e4m3fn": 0.1}
"""The standard deviation of the errors of logits, as a share of that of logits."""
Compiled = Callable[[str, str, str], tuple[Path, Library]]


@pytest.fixture(scope="module")
def compiled(shared: SharedFolders, tiny_folder: Callable[[str, str], Path]) -> Compiled:
    """A function: name of a random float32 model, dtype of its KV cache, target -> its folder and library."""

    def build(name: str, dtype: str, target: str) -> tuple[Path, Library]:
        source = tiny_folder(name, "q0f32")

        def make(folder: Path) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(images, "find_assembler", lambda: None)  # the simulator runs PTX
                flags = ("--device", target, "--opt", "act=exact", "--kv-cache-dtype", dtype)
                run_command("compile", source, *flags, "-o", folder / "lib.so")

        return source, Library(shared.get(f"{name}-{dtype}-{target.replace(':', '-')}", make) / "lib.so")

    return build


@pytest.fixture(
    scope="module", params=[("llama-odd-llama3", "int8"), ("mistral-window", "float8_e4m3fn")], ids="-".join
)
def pair(compiled: Compiled, request: pytest.FixtureRequest) -> Iterator[tuple[LLM, LLM]]:
    """A model with the KV cache dtype of the parameter, and the same model with float32."""
    name, dtype = request.param
    folder, library = compiled(name, dtype, "cpu")
    with ExitStack() as models:
        yield models.enter_context(LLM(folder, library, 2)), models.enter_context(LLM(folder, num_threads=2))


def test_logits_are_near_those_of_a_float_cache(pair: tuple[LLM, LLM]):
    small, exact = (llm.logits(IDS) for llm in pair)
    (state,) = pair[0].model.spec.states
    assert 0 < (small - exact).std() < SHARE[state.dtype] * exact.std()


def test_steps_read_what_prompts_have_stored(pair: tuple[LLM, LLM]):
    llm, _ = pair
    expected = llm.logits(IDS)
    session = llm.new_session()
    np.testing.assert_allclose(session.prefill(IDS[:21]), expected[20], rtol=0, atol=SAME_CODES)
    for position in range(21, 40):
        np.testing.assert_allclose(session.decode_step(IDS[position]), expected[position], rtol=0, atol=SAME_CODES)


def test_forks_have_keys_values_and_scales_of_their_own(pair: tuple[LLM, LLM]):
    llm, _ = pair
    session = llm.new_session()
    session.prefill(IDS[:21])
    fork = session.fork(19)  # in the middle of a page, which both write
    fork.prefill(OTHER[19:30])
    session.prefill(IDS[21:30])
    for got, ids in ((session, IDS), (fork, [*IDS[:19], *OTHER[19:]])):
        np.testing.assert_allclose(got.decode_step(ids[30]), llm.logits(ids[:31])[-1], rtol=0, atol=SAME_CODES)


def test_batches_give_the_same_tokens(pair: tuple[LLM, LLM]):
    llm, _ = pair
    prompts = [IDS[:13], OTHER[:2], IDS[:33]]
    alone = [llm.generate(prompt, max_tokens=8, temperature=0).token_ids for prompt in prompts]
    assert [r.token_ids for r in llm.generate(prompts, max_tokens=8, temperature=0)] == alone


def test_a_gpu_gives_the_tokens_of_the_cpu(compiled: Compiled):
    folder, library = compiled("llama-odd-llama3", "int8", "cuda:sm_80")
    _, native = compiled("llama-odd-llama3", "int8", "cpu")
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        with LLM(folder, native, 1) as cpu, LLM(folder, library) as gpu:
            np.testing.assert_allclose(gpu.logits(IDS[:26]), cpu.logits(IDS[:26]), rtol=0, atol=SAME_CODES)
            prompts = [IDS[:26], OTHER[:3]]
            tokens = [[r.token_ids for r in llm.generate(prompts, max_tokens=3, temperature=0)] for llm in (gpu, cpu)]
        assert tokens[0] == tokens[1] and driver.fault is None
