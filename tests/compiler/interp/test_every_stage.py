"""A graph through the whole pipeline: after every pass the module verifies, round-trips, and gives the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlc_compiler.interp import run_function
from mlc_compiler.ir.module import IRModule
from mlc_compiler.pipeline import pipeline
from mlc_compiler.script import parse
from mlc_compiler.target import Target
from mlc_compiler.verifier import verify
from tests.compiler.script.round_trip import check_round_trip

TEXT = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def append(cache: T.Buffer((8, 6), "float32"), x: T.handle, at: T.int64):
        n = T.int64()
        X = T.match_buffer(x, (n, 6), "float32")
        for i, j in T.grid(n, 6):
            with T.block("append"):
                vi, vj = T.axis.remap("SS", [i, j])
                cache[at + vi, vj] = X[vi, vj]

    @R.function
    def main(ids: R.Tensor(("n",), "int32"), cache: R.Tensor((8, 6), "float32"), at: R.Shape(["p"]),
             weights: R.Tuple(R.Tensor((11, 6), "float32"), R.Tensor((6,), "float32"), R.Tensor((40, 6), "float32"))):
        n = T.int64()
        p = T.int64()
        R.func_attr({"num_input": 3, "tir_var_upper_bound": {"n": 5, "p": 3}})
        cls = Module
        with R.dataflow():
            embed = R.take(weights[0], ids, axis=0)
            norm = R.nn.rms_norm(embed, weights[1], axes=(-1,), epsilon=1e-5)
            kept = R.call_tir_inplace(cls.append, (cache, norm), out_sinfo=R.Tensor((8, 6), "float32"),
                                      inplace_indices=(0,), tir_vars=R.shape([p]))
            scores = R.nn.softmax(R.matmul(norm, R.permute_dims(kept, axes=(1, 0))), axis=-1)
            mixed = R.add(R.matmul(scores, kept), embed)
            wide = R.nn.silu(R.linear(mixed, weights[2]))
            flat = R.reshape(wide, R.shape([n * 40]))
            best = R.argmax(wide, axis=-1)
            R.output(flat, best)
        return (flat, best)
"""


def arguments() -> list[Any]:
    rng = np.random.default_rng(0)
    weights = tuple(rng.standard_normal(shape, np.float32) for shape in ((11, 6), (6,), (40, 6)))
    return [np.array([3, 0, 10], np.int32), rng.standard_normal((8, 6), np.float32), (2,), weights]


@pytest.fixture(scope="module")
def module() -> IRModule:
    return parse(TEXT)


def test_the_source_gives_the_reference_results(module: IRModule) -> None:
    ids, cache, at, (table, scale, up) = arguments()
    embed = table[ids]
    norm = embed * scale / np.sqrt((embed**2).mean(-1, keepdims=True) + 1e-5)
    kept = cache.copy()
    kept[2:5] = norm
    scores = np.exp(norm @ kept.T)
    wide = (scores / scores.sum(-1, keepdims=True) @ kept + embed) @ up.T
    wide = wide / (1 + np.exp(-wide))
    flat, best = run_function(module, "main", ids, cache, at, (table, scale, up))
    np.testing.assert_allclose(flat, wide.ravel(), rtol=2e-5, atol=1e-6)
    assert best.tolist() == wide.argmax(-1).tolist()
    np.testing.assert_allclose(cache, kept, rtol=1e-6)


def packed(mod: IRModule, weights: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Weights packed by the lowered module's packing functions."""
    result = list(weights)
    for index, name in mod.attrs.get("packed", {}).items():
        shape = tuple(size.value for size in mod[name].params[1].struct_info.shape)
        result[int(index)] = np.zeros(shape, np.float32)
        run_function(mod, name, weights[int(index)], result[int(index)])
    return tuple(result)


def test_every_pass_keeps_the_results_and_round_trips(module: IRModule) -> None:
    ids, cache, at, weights = arguments()
    expected_cache = cache.copy()
    flat, best = run_function(module, "main", ids, expected_cache, at, weights)
    mod = module
    for step in pipeline(Target("cpu:x86-64-v3")):
        mod = step.run(mod)
        verify(mod)
        check_round_trip(mod)
    outputs = [np.zeros_like(flat), np.zeros_like(best)]
    run_function(mod, "main", ids, cache, at, packed(mod, weights), *outputs)
    np.testing.assert_allclose(outputs[0], flat, rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs[1], best)
    np.testing.assert_allclose(cache, expected_cache, rtol=1e-6)
