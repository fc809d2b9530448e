"""A two-layer perceptron that the examples build in several ways: weights, inputs, and the result computed by numpy."""

from __future__ import annotations

import numpy as np

from mlc_compiler import IRModule, Library, build, load_library

INPUTS, HIDDEN, OUTPUTS = 784, 128, 10

_RNG = np.random.default_rng(11)
X = _RNG.normal(0, 1, (1, INPUTS)).astype(np.float32)
W0 = _RNG.normal(0, 0.05, (HIDDEN, INPUTS)).astype(np.float32)
B0 = _RNG.normal(0, 1, HIDDEN).astype(np.float32)
W1 = _RNG.normal(0, 0.1, (OUTPUTS, HIDDEN)).astype(np.float32)
B1 = _RNG.normal(0, 1, OUTPUTS).astype(np.float32)
WEIGHTS = {"w0": W0, "b0": B0, "w1": W1, "b1": B1}
EXPECTED = np.maximum(X.astype(np.float64) @ W0.T + B0, 0) @ W1.T + B1


def check_mlp(mod: IRModule, *args: np.ndarray, name: str = "main") -> Library:
    """Build the module and assert that ``main`` gives the expected result, with one thread and with two."""
    lib = build(mod, num_threads=1)
    for same in (lib, load_library(lib.path, num_threads=2)):
        np.testing.assert_allclose(same[name](*args), EXPECTED, rtol=1e-4, atol=1e-5)
    return lib
