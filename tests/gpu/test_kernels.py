"""Kernels of every kind on a GPU, against numpy and the interpreter."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from mlc_compiler.interp import run_function
from mlc_compiler.relax.nodes import Function
from tests.compiler.backends.cuda.products import Case
from tests.compiler.fuzz.differential import first_difference, inputs
from tests.compiler.fuzz.recipes import module, random_recipe
from tests.compiler.relax import paged
from tests.compiler.relax.check_op import graph_of
from tests.compiler.relax.paged import Sizes, random_batch
from tests.compiler.relax.test_every_operator import CASES, check_compiled, every_operator
from tests.gpu.executors import Executor

APPROXIMATE = 30  # elementary functions are approximated; see mlc_compiler/backends/cuda/math.py


def test_every_operator(executor: Executor) -> None:
    """One library has them all: compiling it takes most of the time."""
    wrong = {}
    with executor.built(every_operator()) as library:
        for name in CASES:
            try:
                check_compiled(library, name, APPROXIMATE)
            except AssertionError as error:
                wrong[name] = str(error)
    assert wrong == {}


def test_random_modules_agree_with_the_interpreter(executor: Executor) -> None:
    """Chains of element-wise operators, rearrangements, reductions and products, fused by the compiler."""

    def check(seed: int) -> None:
        random = Random(seed)
        mod, errors = module([random_recipe(random) for _ in range(executor.choose(1, 4))])
        with executor.built(mod) as library:
            for name, func in mod.of_type(Function).items():
                args = inputs(func, random.choice((1, 5, 24)))
                wanted, got = run_function(mod, name, *(a.copy() for a in args)), library[name](*args)
                for a, b, error in zip(_tuple(got), _tuple(wanted), errors[name], strict=True):
                    assert first_difference(a, np.asarray(b), error) is None, f"{name} of seed {seed}"

    executor.for_random(st.integers(0, 10**6), check, examples=40)


def _tuple(result: object) -> tuple:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("weight", ["NK", "KN", "q4 NK", "q4 KN"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products(executor: Executor, dtype: str, weight: str) -> None:
    small, large = st.integers(1, 40), st.integers(1, 300)
    sizes = executor.choose(small, st.one_of(small, large, st.sampled_from((512, 1024, 2049))))
    depths = sizes.map(lambda size: -(-size // 32) * 32)  # whole groups of a quantized weight

    def check(chosen: tuple[int, int, int]) -> None:
        rows, columns, depth = chosen
        case = Case(rows, columns, depth, weight, dtype)
        operands, expected = case.arrays()
        out = np.zeros_like(expected)
        with executor.built(case.function()) as library:
            library["main"](*operands, out)
        error = 4 * float(ml_dtypes.finfo(dtype).eps) * np.abs(expected.astype(np.float64)).max()
        np.testing.assert_allclose(out.astype(np.float64), expected.astype(np.float64), rtol=0, atol=error)

    executor.for_random(st.tuples(sizes, sizes.map(lambda n: 8 * n), depths), check, examples=20)


@pytest.mark.parametrize("stored", ["float16", "int8", "float8_e4m3fn"])
@pytest.mark.parametrize("single_query", [False, True])
def test_attention(executor: Executor, single_query: bool, stored: str) -> None:
    """Sequences of different lengths and beginnings; decode has one token of each."""
    longest = executor.choose(40, 3000)
    beginnings = st.lists(st.integers(0, longest), min_size=1, max_size=4)

    def check(chosen: tuple[list[int], int, int]) -> None:
        starts, group, kv_heads = chosen
        spans = tuple((start, 1 if single_query else 1 + (7 * start) % 19) for start in starts)
        sizes = Sizes(spans, group * kv_heads, kv_heads, 64, 64, 2, 16, "float16", stored, seed=len(starts))
        batch = random_batch(sizes)
        names, scales = tuple(batch.scales), list(batch.scales.values())
        attrs = {"heads": sizes.heads, "scale": 0.125, "single_query": single_query, "names": names}
        expected = paged.attention(*batch.args, 1, scales, **attrs)
        mod = graph_of("nn.paged_attention", (*batch.args, 1, scales), attrs)
        with executor.built(mod) as library:
            np.testing.assert_allclose(_array(library["main"](*batch.args, *scales)), expected, rtol=0, atol=4e-3)

    executor.for_random(st.tuples(beginnings, st.sampled_from((1, 4, 8)), st.sampled_from((1, 3))), check, examples=20)


def _array(result: object) -> np.ndarray:
    assert isinstance(result, np.ndarray)
    return result


def test_sampling(executor: Executor) -> None:
    """The token is the first whose sum of kept probabilities exceeds the uniform number, and always a kept one."""
    vocabulary = executor.choose(500, 128256)

    def check(seed: int) -> None:
        rng = np.random.default_rng(seed)
        rows = int(rng.integers(1, 5))
        logits = rng.normal(0, 4, (rows, vocabulary)).astype(np.float32)
        probs = np.exp(logits - logits.max(-1, keepdims=True))
        probs /= probs.sum(-1, keepdims=True)
        top_p, uniform = rng.uniform(0.05, 1, rows).astype(np.float32), rng.uniform(0, 1, rows).astype(np.float32)
        mod = graph_of("nn.sample_top_p", (probs, top_p, uniform), {})
        wanted = _array(run_function(mod, "main", probs, top_p, uniform))
        with executor.built(mod) as library:
            got = _array(library["main"](probs, top_p, uniform))
        for row, (a, b) in enumerate(zip(got, wanted, strict=True)):
            between = probs[row, min(a, b) : max(a, b)].sum()
            assert between < 1e-5, f"row {row}: token {a}, not {b}"

    executor.for_random(st.integers(0, 10**6), check, examples=20)


def test_sizes_of_zero(executor: Executor) -> None:
    batch = random_batch(replace(Sizes(), kv_dtype="float16"))
    empty = replace(batch, q=batch.q[:0], token_seq=batch.token_seq[:0], token_pos=batch.token_pos[:0])
    attrs = {"heads": 4, "scale": 0.3}
    mod = graph_of("nn.paged_attention", (*batch.args, 1, []), attrs, symbolic=(len(batch.q),))
    with executor.built(mod) as library:
        assert _array(library["main"](*empty.args)).shape == (0, 4, 8)
        assert np.isfinite(_array(library["main"](*batch.args))).all()
