"""Plans run by several threads: native results of random graphs equal those of the interpreter in every run."""

from __future__ import annotations

import random

import numpy as np

from mlc_compiler import build as build_library
from mlc_compiler.api import register_func
from mlc_compiler.interp import run_function
from mlc_compiler.ir.module import IRModule
from tests.compiler.passes.kernel_graphs import FIXED, KINDS, WIDTH, build, negate

FUNCTIONS = 8
RUNS = 5


def random_functions() -> IRModule:
    """Functions ``main0`` to ``main7`` over the same kernels."""
    numbers = random.Random(0)
    functions: dict[str, object] = {}
    for i in range(FUNCTIONS):
        steps = [(numbers.choice(KINDS), numbers.randrange(20), numbers.randrange(20)) for _ in range(12)]
        mod = build(steps, [numbers.randrange(40) for _ in range(3)])
        renamed = {f"main{i}" if name == "main" else name: func for name, func in mod.functions.items()}
        functions |= {n: f.with_attr("global_symbol", n) if n.startswith("main") else f for n, f in renamed.items()}
    return IRModule(functions)


def test_two_threads_compute_what_one_does_in_order() -> None:
    register_func("negate", lambda *tensors: negate(*map(np.from_dlpack, tensors)), override=True)
    mod = random_functions()
    lib = build_library(mod, num_threads=2)
    rng = np.random.default_rng(0)
    for rows in (0, 6):
        shapes = [(rows, WIDTH), (97, WIDTH), (FIXED, WIDTH), (FIXED, WIDTH)]
        x, y, c, d = (rng.integers(-50, 50, shape).astype(np.float32) for shape in shapes)
        for i in range(FUNCTIONS):
            first = [a.copy() for a in (x, y, c, d)]
            expected = run_function(mod, f"main{i}", *first[:2], tuple(first[2:]), externs={"negate": negate})
            for _ in range(RUNS):
                args = [a.copy() for a in (x, y, c, d)]
                got = lib[f"main{i}"](*args[:2], tuple(args[2:]))
                for a, b in zip([*got, *args], [*expected, *first], strict=True):
                    np.testing.assert_array_equal(np.asarray(a), b)
