"""Random modules, built from lists of numbers. Steps that cannot be applied to their operands are skipped.

A recipe with any part removed is therefore still valid, which is used to reduce failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from mlc_compiler.ir.expr import Var as Size
from mlc_compiler.ir.module import IRModule
from mlc_compiler.relax.builder import BlockBuilder
from mlc_compiler.relax.info import make_tuple, tensor_info
from mlc_compiler.relax.nodes import Var

from . import calls, elementwise, moves, products, real, rearrangements, reductions
from .elementwise import DTYPES
from .values import ACTIONS, MOST_ELEMENTS, SYMBOLIC, Builder, Callee, Value, converted

FAMILIES = (elementwise, moves, rearrangements, reductions, real, products, calls)
SIZES = (1, 2, 3, 4, 7, 8, 16, 18, 32, 33)
LARGEST = 1 << 16
PARAMETER_LIMIT = 4.0


@dataclass(frozen=True)
class Step:
    """The index of an action, the indices of its operands, and a number from which its other choices follow."""

    action: int
    a: int
    b: int
    extra: int


@dataclass(frozen=True)
class Recipe:
    """A function: numbers for each parameter (dtype, sizes, whether the first size is ``n``), steps, results."""

    params: tuple[tuple[int, tuple[int, ...], bool], ...]
    steps: tuple[Step, ...]
    results: int


def random_recipe(random: Random) -> Recipe:
    """A recipe with one to three parameters, most often of rank 2."""
    params = [_random_parameter(random) for _ in range(random.randint(1, 3))]
    count, results = random.randint(3, 10), random.randint(1, 3)
    steps = [Step(*(random.randrange(LARGEST) for _ in range(4))) for _ in range(count)]
    return Recipe(tuple(params), tuple(steps), results)


def _random_parameter(random: Random) -> tuple[int, tuple[int, ...], bool]:
    rank = random.choice((0, 1, 1, 2, 2, 2, 2, 3, 3))
    return random.randrange(LARGEST), tuple(random.randrange(LARGEST) for _ in range(rank)), random.random() < 0.5


def module(chosen: Sequence[Recipe], activation_bits: int = 16) -> tuple[IRModule, dict[str, list[float]]]:
    """A module with a function for each recipe, ``f0``, ``f1`` …, and the error bounds of their results."""
    builder = BlockBuilder()
    made: list[Callee] = []
    for i, recipe in enumerate(chosen):
        made.append(_function(recipe, f"f{i}", builder, Builder(tuple(made), activation_bits)))
    return builder.get(), {f.name: [r.error for r in f.results] for f in made}


def _function(recipe: Recipe, name: str, into: BlockBuilder, b: Builder) -> Callee:
    params = [_parameter(b.n, i, *p) for i, p in enumerate(recipe.params)]
    b.values = [Value(p, PARAMETER_LIMIT) for p in params]
    with into.function(name, params):
        with into.dataflow():
            for step in recipe.steps:
                _take(b, step)
            results = [_outside(b, v) for v in b.values[-recipe.results :]]
            values = [into.emit_output(r.expr) for r in results]
        into.emit_func_output(values[0] if len(values) == 1 else make_tuple(values))
    return Callee(name, b.n, [Value(p, PARAMETER_LIMIT) for p in params], results)


def _outside(b: Builder, x: Value) -> Value:
    return x if x.dtype in DTYPES else converted(b, x, "int8") or x


def _take(b: Builder, step: Step) -> None:
    action = ACTIONS[step.action % len(ACTIONS)]
    values = [v for v in b.values if not (action.exact and v.error)]
    x, y = values[(-1 - step.a % 3) % len(values)], values[step.b % len(values)]
    found = action.act(b, x, y, step.extra)
    if found is not None:
        b.values.append(found)


def _parameter(n: Size, index: int, dtype: int, shape: Sequence[int], symbolic: bool) -> Var:
    sizes: list[int | Size] = [SIZES[s % len(SIZES)] for s in shape]
    while np.prod(sizes, dtype=int) * SYMBOLIC[-1] > MOST_ELEMENTS:
        sizes = sizes[1:]
    if symbolic and sizes:
        sizes[0] = n
    return Var(f"x{index}", tensor_info(tuple(sizes), DTYPES[dtype % len(DTYPES)]))
