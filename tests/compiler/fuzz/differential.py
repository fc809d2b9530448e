"""Differential testing of compiled modules against the interpreter, with one and two threads or a simulated GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from mlc_compiler.driver import build_library
from mlc_compiler.interp import run_function
from mlc_compiler.interp.evaluate import evaluate
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.expr import Var as Size
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import free_vars
from mlc_compiler.optimization import Optimization
from mlc_compiler.passes.absorb_transposes import AbsorbTransposes
from mlc_compiler.passes.annotate_patterns import AnnotatePatterns
from mlc_compiler.passes.base import Pass
from mlc_compiler.passes.common_subexpressions import CommonSubexpressions
from mlc_compiler.passes.eliminate_dead import EliminateDead
from mlc_compiler.passes.fold_constants import FoldConstants
from mlc_compiler.passes.fuse_ops import FuseOps
from mlc_compiler.passes.fuse_tensor_functions import FuseTensorFunctions
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.pipeline import entries, run_passes
from mlc_compiler.relax.nodes import Function, TensorStructInfo, Var
from mlc_compiler.script import to_text
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_compiler.target import Target
from mlc_compiler.verifier import verify
from mlc_runtime.library import ContextError, Library
from tests.compiler.fuzz.recipes import Recipe, module, random_recipe

SIZES = ((5,), (1, 13), (24,), (0, 5), (0, 2))
TARGETS = ("cpu", "cpu", "cpu", "cpu:x86-64-v3", "cpu:x86-64")
ACTIVATION_BITS = (16, 8)
LEVELS = ("O3", "O3", "O3", "O1", "O0")
REWRITES = {step.name: step for step in (FoldConstants(), CommonSubexpressions(), AbsorbTransposes(), EliminateDead())}
FUSION = (AnnotatePatterns(), FuseOps(), FuseTensorFunctions())
LOWERINGS: tuple[tuple[Pass, ...], ...] = ((), (Legalize(),), (Legalize(), *FUSION))
PASSES: dict[str, Pass] = {**REWRITES, **{step.name: step for step in LOWERINGS[-1]}}
"""Passes that a trial may run before the pipeline: rewrites in any order, then one of ``LOWERINGS``."""
MOST_REWRITES = 6
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Trial:
    """A test case: the recipes of a module, the values of ``n`` to run it with, the target, and options.

    passes: names of ``PASSES`` that run before the pipeline. level: of the pipeline, O0 to O3.
    """

    recipes: tuple[Recipe, ...]
    sizes: tuple[int, ...]
    target: str = "cpu"
    activation_bits: int = 16
    passes: tuple[str, ...] = ()
    level: str = "O3"

    @classmethod
    def of_seed(cls, seed: int, target: str | None = None) -> Trial:
        """The trial generated from a seed. target: by default, chosen by the seed."""
        random = Random(seed)
        chosen = tuple(random_recipe(random) for _ in range(random.randint(3, 6)))
        sizes, any_target = random.choice(SIZES), random.choice(TARGETS)
        bits = random.choice(ACTIVATION_BITS)
        rewrites = random.choices(tuple(REWRITES), k=random.randint(0, MOST_REWRITES))
        lowering = [step.name for step in random.choice(LOWERINGS)]
        level = random.choice(LEVELS)
        return cls(chosen, sizes, target or any_target, bits, (*rewrites, *lowering), level)

    @property
    def title(self) -> str:
        """The target and the options as one line."""
        first = f", after {' '.join(self.passes)}" if self.passes else ""
        return f"{self.target}, {self.level}, act={self.activation_bits}{first}"

    def module(self) -> tuple[IRModule, dict[str, list[float]]]:
        """The module, and the error bounds of its functions' results."""
        return module(self.recipes, self.activation_bits)


def small_integers(shape: Sequence[int], dtype: str, seed: int) -> np.ndarray:
    """Pseudo-random integers from -4 to 4 (0 to 4 for unsigned dtypes)."""
    count = int(np.prod(shape))
    values = (np.arange(count, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(seed * 40503 + 7)) >> np.uint64(13)
    numbers = (values % np.uint64(9)).astype(np.int64) - 4
    if dtype == "bool":
        return (numbers > 0).reshape(shape)
    return (np.abs(numbers) if dtype.startswith("uint") else numbers).reshape(shape).astype(dt.to_numpy(dtype))


def inputs(func: Function, n: int) -> list[np.ndarray]:
    """An array for each parameter, with ``n`` for every symbolic size."""
    return [small_integers(*_shape_and_dtype(p, n), seed) for seed, p in enumerate(func.params)]


def _shape_and_dtype(param: Var, n: int) -> tuple[tuple[int, ...], str]:
    info = param.struct_info
    assert isinstance(info, TensorStructInfo)
    sizes: Mapping[int, int] = {id(v): n for s in info.shape or () for v in free_vars(s) if isinstance(v, Size)}
    return tuple(int(evaluate(s, sizes)) for s in info.shape or ()), info.dtype


def check(mod: IRModule, trial: Trial, errors: Mapping[str, Sequence[float]]) -> None:
    """Assert that every compiled graph function gives the interpreter's results, within the results' ``errors``.

    The module is verified after each pass.
    """
    verify(mod)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path, target = Path(folder) / "lib.so", Target(trial.target)
        flat = run_passes(mod, (*entries(), *(PASSES[name] for name in trial.passes)), check=verify)
        optimization = Optimization.parse(f"{trial.level};act={trial.activation_bits}")
        build_library(flat, target, path, optimization=optimization, check=verify)
        with _opened(path, target) as libraries:
            for name, func in mod.of_type(Function).items():
                symbolic = any(free_vars(p.struct_info) for p in func.params)
                for n in trial.sizes if symbolic else trial.sizes[:1]:
                    _check_function(mod, name, n, libraries, errors[name])


@contextmanager
def _opened(path: Path, target: Target) -> Iterator[Sequence[Library]]:
    """Open the library with one thread and with two, or on a simulated driver whose fault is raised at the end."""
    if target.kind == "cpu":
        yield Library(path, num_threads=1), Library(path, num_threads=2)
        return
    with SimulatedDriver(target.cpu) as driver:
        library = Library(path)
        driver.install(library)
        try:
            yield (library,)
        except RuntimeError as error:
            raise driver.fault or error from None
        finally:
            with suppress(ContextError):
                library.context.close()


def _check_function(mod: IRModule, name: str, n: int, libraries: Sequence[Library], errors: Sequence[float]) -> None:
    args = inputs(mod[name], n)
    wanted = _flat(run_function(mod, name, *(a.copy() for a in args)))
    for library in libraries:
        given = [a.copy() for a in args]
        got = _flat(library[name](*given))
        where = f"{name}, n = {n}, {library.num_threads} threads"
        assert len(got) == len(wanted) == len(errors), f"{where}: {len(got)} results"
        for i, (a, b, error) in enumerate(zip(got, wanted, errors)):
            difference = first_difference(a, b, error)
            assert difference is None, f"{where}, result {i}: {difference}"
        for i, (a, b) in enumerate(zip(given, args)):
            assert np.array_equal(a, b), f"{where}: argument {i} was overwritten"


def _flat(result: object) -> Arrays:
    return tuple(np.asarray(r) for r in (result if isinstance(result, tuple | list) else (result,)))


def first_difference(got: np.ndarray, wanted: np.ndarray, error: float) -> str | None:
    """The first difference of two results above ``error``, as text; NaN equals NaN."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    same = got == wanted
    if dt.is_float(str(got.dtype)):
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(invalid="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= error)
    if np.all(same):
        return None
    at = tuple(int(i) for i in np.argwhere(~np.asarray(same))[0])
    count = np.size(same) - np.count_nonzero(same)
    return f"{got[at]} at {list(at)}, not {wanted[at]} ± {error:.1e} ({count} of {got.size} differ)"


# -- reproducers --------------------------------------------------------------------------------------------------


class Failure(AssertionError):
    """A failing module and its error; the message has the module's text and the constants that the text refers to."""

    def __init__(self, mod: IRModule, trial: Trial, what: str):
        text = to_text(mod)
        self.trial, self.what, self.text, self.constants = trial, what, text.text, text.constants
        arrays = [f"constants[{i}] = np.array({c.tolist()}, {str(c.dtype)!r})" for i, c in enumerate(text.constants)]
        super().__init__("\n".join([f"{what} ({trial.title})", text.text, *arrays]))


def run_trial(trial: Trial) -> None:
    """Build and check the module of a trial. Raises Failure with a reduced module."""
    if _failure(trial) is None:
        return
    small = reduced(trial)
    mod, errors = small.module()
    tidy = EliminateDead().run(mod)
    shown = mod if failure(tidy, small, errors) is None else tidy
    raise Failure(shown, small, failure(shown, small, errors) or "passes when it is run again")


def failure(mod: IRModule, trial: Trial, errors: Mapping[str, Sequence[float]]) -> str | None:
    """The error of checking a module with a trial's sizes and target; None when it passes."""
    try:
        check(mod, trial, errors)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _failure(trial: Trial) -> str | None:
    mod, errors = trial.module()
    return failure(mod, trial, errors)


def reduced(trial: Trial) -> Trial:
    """Remove from a failing trial all functions, steps, results, parameters and axes that the failure does not need."""
    for smaller in _smaller(trial):
        if _failure(smaller) is not None:
            return reduced(smaller)
    return trial


def _smaller(trial: Trial) -> Iterator[Trial]:
    if len(trial.recipes) > 1:
        for recipe in trial.recipes:
            yield replace(trial, recipes=(recipe,))
        for i in range(len(trial.recipes)):
            yield replace(trial, recipes=trial.recipes[:i] + trial.recipes[i + 1 :])
    for n in trial.sizes if len(trial.sizes) > 1 else ():
        yield replace(trial, sizes=(n,))
    if trial.passes:
        yield replace(trial, passes=())
    for i in (i for i, name in enumerate(trial.passes) if name in REWRITES):
        yield replace(trial, passes=trial.passes[:i] + trial.passes[i + 1 :])
    for i, recipe in enumerate(trial.recipes):
        for less in _smaller_recipes(recipe):
            yield replace(trial, recipes=(*trial.recipes[:i], less, *trial.recipes[i + 1 :]))


def _smaller_recipes(recipe: Recipe) -> Iterator[Recipe]:
    for i in range(len(recipe.steps)):
        yield replace(recipe, steps=recipe.steps[:i] + recipe.steps[i + 1 :])
    if recipe.results > 1:
        yield replace(recipe, results=recipe.results - 1)
    for i in range(len(recipe.params)):
        if len(recipe.params) > 1:
            yield replace(recipe, params=recipe.params[:i] + recipe.params[i + 1 :])
        dtype, shape, symbolic = recipe.params[i]
        for j in range(len(shape)):
            param = (dtype, shape[:j] + shape[j + 1 :], symbolic)
            yield replace(recipe, params=(*recipe.params[:i], param, *recipe.params[i + 1 :]))
