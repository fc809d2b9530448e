"""Compute the coefficients of the compiler's elementary functions (``mlc_compiler/tir/math``) with mpmath.

Each row names a function, the interval and the form ``lead(x) + scale(x) * polynomial(variable(x))``. The polynomial
minimises the maximum weighted error (Lawson's iteration on Chebyshev points); coefficients are rounded to the
arithmetic's precision one by one, lowest order first, and the others are refitted each time.

    python benchmarks/fit_polynomials.py [name …]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from mpmath import mp, mpf

mp.prec = 160
POINTS = 300
LAWSON_ROUNDS = 30

Real = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """``function(x) ~ lead(x) + scale(x) * p(variable(x))``, error relative to ``function`` times ``weight``."""

    function: Real
    low: float
    high: float
    degree: int
    variable: Real = lambda x: x
    scale: Real = lambda x: mpf(1)
    lead: Real = lambda x: mpf(0)
    weight: Real = lambda x: mpf(1)
    dtype: type = np.float32


def log2_erfc(t: mpf) -> mpf:
    return mp.log(mp.erfc(t), 2)


FITS = {
    "exp": Fit(mp.exp, -0.3475, 0.3475, 4, scale=lambda r: r * r, lead=lambda r: 1 + r),
    "exp_coarse": Fit(mp.exp, -0.3475, 0.3475, 3),
    "exp2": Fit(lambda r: mpf(2) ** r, -0.5, 0.5, 6, scale=lambda r: r, lead=lambda r: mpf(1)),
    "exp2_coarse": Fit(lambda r: mpf(2) ** r, -0.5, 0.5, 5),
    "exp2_wide": Fit(lambda r: mpf(2) ** r, -0.5, 0.5, 7, dtype=np.float64),
    "tanh": Fit(mp.tanh, 0.0, 0.6251, 4, variable=lambda x: x * x, scale=lambda x: x**3, lead=lambda x: x),
    "erf": Fit(mp.erf, 0.0, 0.95, 5, variable=lambda x: x * x, scale=lambda x: x, lead=lambda x: x),
    "erfc": Fit(
        log2_erfc, 0.9, 4.0, 5, scale=lambda t: t, weight=lambda t: -log2_erfc(t) * mp.ln(2) * mp.erfc(t) / mp.erf(t)
    ),
    "log2": Fit(
        lambda s: mp.atanh(s) * 2 / mp.ln(2),
        0.0,
        0.1716,
        5,
        variable=lambda s: s * s,
        scale=lambda s: s,
        dtype=np.float64,
    ),
    "sin": Fit(mp.sin, 0.0, 0.7855, 3, variable=lambda x: x * x, scale=lambda x: x**3, lead=lambda x: x),
    "cos": Fit(mp.cos, 0.0, 0.7855, 3, variable=lambda x: x * x, scale=lambda x: x**4, lead=lambda x: 1 - x * x / 2),
}


def fit(row: Fit) -> tuple[list[float], float]:
    """The coefficients, lowest order first, and the maximum error relative to the function."""
    mid, half = mpf(row.low + row.high) / 2, mpf(row.high - row.low) / 2
    xs = [mid + half * mp.cos(mp.pi * (mpf(2 * i + 1) / (2 * POINTS))) for i in range(POINTS)]
    fixed: list[float] = []
    for _ in range(row.degree + 1):
        exact = _lawson(row, xs, fixed)
        fixed.append(float(row.dtype(float(exact[0]))))
    return fixed, float(max(abs(e) for e in _errors(row, xs, fixed)))


def _errors(row: Fit, xs: list[mpf], coefficients: list[float]) -> list[mpf]:
    result = []
    for x in xs:
        p = sum(mpf(c) * row.variable(x) ** k for k, c in enumerate(coefficients))
        result.append((row.lead(x) + row.scale(x) * p - row.function(x)) / row.function(x) * row.weight(x))
    return result


def _lawson(row: Fit, xs: list[mpf], fixed: list[float]) -> list[mpf]:
    """The minimax values of the free coefficients, with the first ones ``fixed``."""
    free = row.degree + 1 - len(fixed)
    basis, target = [], []
    for x in xs:
        to_error = row.scale(x) / row.function(x) * row.weight(x)
        z = row.variable(x)
        known = sum(mpf(c) * z**k for k, c in enumerate(fixed))
        basis.append([float(to_error * z ** (k + len(fixed))) for k in range(free)])
        target.append(float((row.function(x) - row.lead(x)) / row.function(x) * row.weight(x) - to_error * known))
    a, b = np.array(basis, np.longdouble), np.array(target, np.longdouble)
    weights = np.ones(len(xs), np.longdouble) / len(xs)
    best, best_error = None, np.inf
    for _ in range(LAWSON_ROUNDS):
        root = np.sqrt(weights)
        solution = _least_squares(a * root[:, None], b * root)
        error = np.abs(a @ solution - b)
        if error.max() < best_error:
            best, best_error = solution, error.max()
        weights = weights * error
        weights /= weights.sum()
    assert best is not None
    return [mpf(float(c)) for c in best]


def _least_squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Least squares by modified Gram-Schmidt in extended precision, with columns scaled to norm one."""
    scale = np.sqrt((a * a).sum(axis=0))
    q, n = a / scale, a.shape[1]
    r = np.zeros((n, n), np.longdouble)
    for k in range(n):
        r[k, k] = np.sqrt((q[:, k] ** 2).sum())
        q[:, k] /= r[k, k]
        for j in range(k + 1, n):
            r[k, j] = (q[:, k] * q[:, j]).sum()
            q[:, j] -= r[k, j] * q[:, k]
    y = q.T @ b
    x = np.zeros(n, np.longdouble)
    for k in reversed(range(n)):
        x[k] = (y[k] - r[k, k + 1 :] @ x[k + 1 :]) / r[k, k]
    return x / scale


def main(names: list[str]) -> None:
    for name in names or FITS:
        coefficients, error = fit(FITS[name])
        digits = 9 if FITS[name].dtype is np.float32 else 17
        shown = ", ".join(f"{c:.{digits - 1}e}" for c in reversed(coefficients))
        print(f"{name}: maximum relative error 2^{float(mp.log(error, 2)):.1f}\n    ({shown})")


if __name__ == "__main__":
    main(sys.argv[1:])
