"""Elementary functions of GPUs: errors in ulp, with the hardware's approximations replaced by exact functions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from mlc_compiler.backends.cuda.math import ON_GPU
from mlc_compiler.ir.expr import Call, FloatImm, PrimExpr
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import Rewriter, walk
from mlc_compiler.passes.lower_math import LowerMath
from mlc_compiler.tir.math import RULES
from mlc_compiler.tir.nodes import PrimFunc
from tests.compiler.codegen.accuracy import BINARY_REFERENCES, REFERENCES, all_floats, worst_error
from tests.compiler.codegen.native import Kernels, apply, elementwise

F32, F64 = "float32", "float64"
BOUNDS = {"log": 3.0, "log1p": 3.0, "log2": 3.0, "log10": 4.0, "tan": 5.0, "erf": 2.0}

INSTRUCTIONS = set("fma sqrt trunc round abs copysign reinterpret if_then_else exp2 rsqrt".split())


class Exact(Rewriter):
    """Replace the approximate instructions by functions that every target has."""

    def rewrite_Call(self, node: Call) -> PrimExpr:
        args = self(node.args)
        if node.op == "cuda.rcp":
            return FloatImm(1.0, F32) / args[0]
        return Call({"cuda.ex2": "exp2", "cuda.rsqrt": "rsqrt"}.get(node.op, node.op), args, node.dtype)


def on_gpu(name: str, dtype: str) -> PrimFunc:
    func = elementwise(lambda *a: Call(name, a, dtype), (dtype,) * _arity(name), dtype)
    lowered = LowerMath(ON_GPU).run(IRModule({"f": func}))["f"]
    return Exact()(lowered)


def _arity(name: str) -> int:
    return 2 if name in BINARY_REFERENCES else 1


@pytest.fixture(scope="module")
def single() -> Kernels:
    return Kernels({name: on_gpu(name, F32) for name in RULES})


def test_all_functions_are_arithmetic_on_gpus():
    assert set(ON_GPU[F32]) == set(RULES)
    assert set(ON_GPU[F64]) >= set(RULES)
    for name in RULES:
        calls = {n.op for n in walk(on_gpu(name, F32)) if isinstance(n, Call)}
        assert calls <= {
            "fma",
            "sqrt",
            "trunc",
            "round",
            "abs",
            "copysign",
            "reinterpret",
            "if_then_else",
            "exp2",
            "rsqrt",
        }


@pytest.mark.parametrize("name", [n for n in RULES if _arity(n) == 1])
def test_errors_over_the_whole_range(single, name):
    x = next(all_floats(16381))
    x = x[: x.size // 16 * 16].copy()
    if name == "sigmoid":
        x = np.maximum(x, np.float32(-87.0))
    worst = worst_error(single, name, x)
    assert worst.ulp <= BOUNDS.get(name, 2.0), worst


@pytest.mark.parametrize("name", ["pow", "atan2", "fmod", "hypot"])
def test_functions_of_two_arguments(single, name):
    rng = np.random.default_rng(1)
    x = np.exp(rng.normal(0, 3, 1 << 14)).astype(F32) * rng.choice(np.float32([1, -1]), 1 << 14)
    special = np.float32([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5, -3.0, 3e38, 1e-30, 0.5, -0.5, 2, 3, -2])
    y = rng.permutation(x)
    x, y = np.concatenate([x, np.repeat(special, 16)]), np.concatenate([y, np.tile(special, 16)])
    worst = worst_error(single, name, x, y)
    assert worst.ulp <= 2.0, worst


# -- float64 -----------------------------------------------------------------------------------------------------------

LONG = np.longdouble
INF = np.inf
SPECIAL = np.array(
    [0.0, -0.0, 2.3e-308, 1.0, -1.0, 2.5, 1.7e308, -1.7e308, INF, -INF, np.nan, -2, 0.5, -0.5, 709.7, -740.0]
)
WIDE: dict[str, Callable[..., np.ndarray]] = {
    **{n: f for n, f in REFERENCES.items() if n in RULES and n not in ("erf", "exp10")},
    "exp10": lambda x: np.power(LONG(10), x),
    "erf": lambda x: np.array([math.erf(v) for v in x], LONG),
    **{n: f for n, f in BINARY_REFERENCES.items() if n != "copysign"},
}


@pytest.fixture(scope="module")
def double() -> Kernels:
    return Kernels({name: on_gpu(name, F64) for name in WIDE})


@pytest.mark.parametrize("name", WIDE)
def test_float64(double, name):
    rng = np.random.default_rng(2)
    parts = [rng.normal(0, s, 2048) for s in (50, 1, 1e-3)]
    x = np.concatenate([np.repeat(SPECIAL, 16), *parts, np.exp(rng.normal(0, 30, 2048)), 1 + rng.normal(0, 1e-3, 2048)])
    y = np.concatenate([np.tile(SPECIAL, 16), rng.permutation(x[256:])])
    if name in ("sin", "cos", "tan"):
        x = x[: x.size - 4096]
        x = np.where(np.abs(x) < 2.0**45, x, 1.0)
    if name == "sigmoid":
        x = np.maximum(x, -700.0)
    args = [x, y][: _arity(name)]
    got = apply(double[name], np.empty_like(x), *args)
    with np.errstate(all="ignore"):
        wanted = WIDE[name](*(a if name == "fmod" else a.astype(LONG) for a in args)).astype(LONG)
        error = np.abs((got - wanted) / np.maximum(np.spacing(np.abs(wanted.astype(F64))), 5e-324))
    same = (got == wanted.astype(F64)) | (np.isnan(got) & np.isnan(wanted))
    worst = int(np.argmax(np.where(same, 0, np.where(np.isnan(error), INF, error))))
    assert same[worst] or error[worst] <= (40.0 if name == "erf" else 4.0), [a[worst] for a in args]
