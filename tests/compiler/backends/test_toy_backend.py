"""A toy back end, defined outside the compiler, compiles and runs modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler import build, parse, register_func
from mlc_compiler.backends import emit_llvm, register_backend, unregister_backend
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.target import Target
from mlc_compiler.tir.intrinsics import tensor_intrins
from mlc_compiler.tir.nodes import PrimFunc
from mlc_errors import MLCError, UnsupportedError, UsageError
from mlc_toolchain import ir_opt
from tests.compiler.backends.toy import ADD4, ToyBackend
from tests.compiler.relax import paged
from tests.compiler.relax.check_op import graph_of

MODULE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 24), "float32"), w: R.Tensor((24, 16), "float32"), b: R.Tensor((16,), "float32")):
        with R.dataflow():
            scores = R.nn.softmax(R.add(R.matmul(x, w), b))
            gated = R.multiply(R.nn.silu(x), R.exp(x))
            R.output(scores, gated)
        return (scores, gated)

    @R.function
    def plus(a: R.Tensor((3, 20), "float32"), b: R.Tensor((3, 20), "float32")):
        with R.dataflow():
            c = R.add(a, b)
            R.output(c)
        return c
"""
PARALLEL = """
@T.prim_func
def twice(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
    for i in T.parallel(4):
        for j in T.vectorized(8):
            b[i, j] = a[i, j] * T.float32(2)
"""
RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    register_backend(ToyBackend())
    yield
    unregister_backend("toy")


def test_a_graph_gives_the_right_numbers():
    x, w, b = (RNG.standard_normal(shape, "float32") for shape in ((5, 24), (24, 16), (16,)))
    lib = build(parse(MODULE), "toy")
    scores, gated = lib["main"](x, w, b)
    powers = np.exp(x.astype("f8") @ w + b)
    np.testing.assert_allclose(scores, powers / powers.sum(axis=1, keepdims=True), rtol=3e-6)
    np.testing.assert_allclose(gated, x / (1 + np.exp(-x.astype("f8"))) * np.exp(x), rtol=3e-6, atol=1e-7)
    assert lib.metadata["target"] == {"kind": "toy", "model": "plain"}
    assert lib.metadata["host"] == Target("cpu").export()


def test_the_instruction_is_used_where_it_fits():
    lowered = run_passes(parse(MODULE), pipeline(Target("toy")))
    rules = {name: f.attrs["schedule"] for name, f in lowered.of_type(PrimFunc).items()}
    assert rules.pop("add1") == "AddFours" and set(rules.values()) == {"Sequential"}
    a, b = RNG.standard_normal((2, 3, 20), "float32")
    np.testing.assert_array_equal(build(parse(MODULE), "toy")["plus"](a, b), a + b)
    with pytest.raises(MLCError, match="the target has no instruction 'toy.add4': it has code for toy"):
        list(emit_llvm(lowered, Target("cpu")))


@pytest.mark.parametrize("spans", [((0, 5), (9, 2)), ((3, 1), (17, 1), (0, 1))])
def test_paged_attention_has_a_lowering_everywhere(spans: tuple[tuple[int, int], ...]):
    batch = paged.random_batch(paged.Sizes(spans))
    mod = graph_of("nn.paged_attention", (*batch.args, 1, []), {"heads": 4, "scale": 0.3}, symbolic={len(batch.q)})
    expected = paged.attention(*batch.args, 1, [], heads=4, scale=0.3)
    np.testing.assert_allclose(build(mod, "toy")["main"](*batch.args), expected, rtol=3e-6, atol=3e-6)


def test_loops_of_users_lose_their_kinds():
    lowered = run_passes(parse(PARALLEL), pipeline(Target("toy")))
    assert "parallel" not in str(lowered) and "vectorized" not in str(lowered)
    a, b = RNG.standard_normal((2, 4, 8), "float32")
    build(parse(PARALLEL), "toy")["twice"](a, b)
    np.testing.assert_array_equal(b, 2 * a)


def test_registered_functions_are_called():
    register_func("toy.negate", lambda x, y: np.copyto(np.from_dlpack(y), -np.from_dlpack(x)), override=True)
    mod = parse(
        '@R.function\ndef main(x: R.Tensor((3,), "float32")):\n'
        '    y = R.call_dps_packed("toy.negate", (x,), out_sinfo=R.Tensor((3,), "float32"))\n    return y'
    )
    np.testing.assert_array_equal(build(mod, "toy")["main"](np.arange(3, dtype="f4")), [0, -1, -2])


def test_names_are_taken_once_and_given_back():
    with pytest.raises(MLCError, match="there is a kind of target 'toy' already"):
        register_backend(ToyBackend())
    assert tensor_intrins()[ADD4.name] is ADD4
    unregister_backend("toy")
    assert ADD4.name not in tensor_intrins()
    with pytest.raises(UnsupportedError, match="no kind of target 'toy'"):
        Target("toy")
    register_backend(ToyBackend())
    with pytest.raises(UnsupportedError, match="target toy: no option 'modle'") as error:
        Target("toy -modle=plain")
    assert error.value.hint == "did you mean model?"


def test_its_passes_run_alone(tmp_path: Path):
    file = tmp_path / "twice.py"
    file.write_text(PARALLEL)
    assert "T.parallel" in ir_opt.run_passes(file, [], "toy").text
    assert "for i, j in T.grid(4, 8):" in ir_opt.run_passes(file, ["serial-loops"], "toy").text
    with pytest.raises(UsageError, match="no pass 'serial-loops'"):
        ir_opt.run_passes(file, ["serial-loops"], "cpu")
