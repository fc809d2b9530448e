"""Errors of compiled elementary functions, in units in the last place.

    python -m tests.compiler.codegen.accuracy [--every N] [--target cpu:x86-64-v3] [function …]

tries every N-th of all 2 ** 32 float32 numbers (all of them by default: minutes for each function), together with as
many random ones for functions of two arguments.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from mlc_compiler.ir.expr import Call
from mlc_compiler.target import Target
from tests.compiler.codegen.native import HOST, Kernels, apply, elementwise

F32 = "float32"
CHUNK = 1 << 22


def _torch(name: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: getattr(torch, name)(torch.from_numpy(x)).numpy()


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in "exp exp2 log log2 log10 log1p tanh sin cos sqrt".split()},
    **{name: getattr(np, name) for name in "floor ceil trunc abs tan sinh cosh".split()},
    "exp10": lambda x: np.power(10.0, x),
    "erf": _torch("erf"),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "round": np.rint,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}
BINARY_REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    "pow": np.power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "copysign": np.copysign,
}


@dataclass
class Worst:
    """The maximum error in ulp, and its arguments."""

    ulp: float = 0.0
    at: tuple[float, ...] = ()

    def update(self, errors: np.ndarray, args: tuple[np.ndarray, ...]) -> None:
        index = int(np.argmax(errors))
        if errors[index] > self.ulp:
            self.ulp, self.at = float(errors[index]), tuple(float(a[index]) for a in args)


def errors_in_ulp(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance of float32 results from float64 ones, in the spacing of float32 there.

    Infinite where one is NaN, or infinite, or negative, and the other is not; the sign of zero counts.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.minimum(np.abs(rounded), np.finfo(np.float32).max)).astype(np.float64)
        errors = np.abs(got.astype(np.float64) - exact) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(exact))
    errors[same & ~np.isfinite(rounded)] = 0.0
    errors[same & (exact == 0)] = 0.0
    unlike = (np.isnan(got) != np.isnan(exact)) | (np.isfinite(got) != np.isfinite(rounded))
    signs = (np.signbit(got) != np.signbit(rounded)) & ~np.isnan(got)
    errors[unlike | signs] = np.inf
    return errors


def function_kernels(names: Iterable[str], to=HOST) -> Kernels:
    """Each function as a kernel over float32 arrays."""
    return Kernels({name: _kernel(name) for name in names}, to)


def _kernel(name: str):
    arity = 2 if name in BINARY_REFERENCES else 1
    return elementwise(lambda *args: Call(name, args, F32), (F32,) * arity, F32)


def worst_error(kernels: Kernels, name: str, *args: np.ndarray) -> Worst:
    """The maximum error of a function over float32 arguments."""
    worst = Worst()
    exact = (REFERENCES | BINARY_REFERENCES)[name]
    got = apply(kernels[name], np.empty_like(args[0]), *args)
    with np.errstate(all="ignore"):
        worst.update(errors_in_ulp(got, exact(*(a.astype(np.float64) for a in args))), args)
    return worst


def all_floats(every: int) -> Iterator[np.ndarray]:
    """Every ``every``-th float32 number, in chunks."""
    for start in range(0, 1 << 32, CHUNK * every):
        yield np.arange(start, min(start + CHUNK * every, 1 << 32), every, np.uint64).astype(np.uint32).view(np.float32)


def second_arguments(count: int, rng: np.random.Generator) -> np.ndarray:
    """float32 second arguments: half from all numbers, half within some powers of ten around one."""
    near = np.exp(rng.normal(0, 3, count)) * rng.choice([-1, 1], count)
    anything = rng.integers(0, 1 << 32, count, np.uint64).astype(np.uint32).view(np.float32)
    return np.where(rng.random(count) < 0.5, near.astype(np.float32), anything)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("functions", nargs="*", default=[*REFERENCES, *BINARY_REFERENCES])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--target", default="cpu")
    options = parser.parse_args()
    kernels = function_kernels(options.functions, Target(options.target))
    for name in options.functions:
        worst, rng = Worst(), np.random.default_rng(0)
        for numbers in all_floats(options.every):
            x = numbers[: numbers.size // 16 * 16]
            args = (x, second_arguments(x.size, rng)) if name in BINARY_REFERENCES else (x,)
            chunk = worst_error(kernels, name, *args)
            worst = max(worst, chunk, key=lambda w: w.ulp)
        print(f"{name:8} {worst.ulp:.3f} ulp at {worst.at}", flush=True)


if __name__ == "__main__":
    main()
