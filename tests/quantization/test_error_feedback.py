"""GPTQ against the formulas of the paper, column by column with an explicit inverse."""

import numpy as np
import pytest

from quantization import error_feedback, group
from quantization.error_feedback import DAMPING, encode, inverse_factor
from quantization.schemes import SCHEMES

INPUTS = 80  # a group at the end is partial


def correlated_inputs(rng):
    mixed = rng.standard_normal((500, 12)) @ rng.standard_normal((12, INPUTS))
    return (mixed + 0.3 * rng.standard_normal((500, INPUTS))).astype(np.float32)


def reference(weight, hessian, scales, levels):
    """Equation 2 of the paper: after each column the inverse is that of the inputs that remain."""
    w = weight.astype(np.float64)
    damped = hessian.astype(np.float64) + DAMPING * np.diag(hessian).mean() * np.eye(INPUTS)
    inverse = np.linalg.inv(damped)
    rounded = np.empty_like(w)
    for k in np.argsort(-np.diag(hessian), kind="stable"):
        scale = scales[:, k // 32].astype(np.float64)
        nearest = np.abs(w[:, k, None] / scale[:, None] - levels).argmin(axis=1)
        rounded[:, k] = levels[nearest] * scale
        w -= np.outer((w[:, k] - rounded[:, k]) / inverse[k, k], inverse[k])
        inverse -= np.outer(inverse[:, k], inverse[k]) / inverse[k, k]
    return rounded


@pytest.mark.parametrize("compiled_elements", [0, 1 << 30], ids=["compiled", "numpy"])
@pytest.mark.parametrize("name", ["q4f16_3", "q4f16_nl", "q5f16_3", "q3f16_nl8", "q4f16_nl8"])
def test_codes_are_those_of_the_paper(name, compiled_elements, monkeypatch):
    """With blocks of 70 rows, of which a tile of the compiled kernel takes 64."""
    monkeypatch.setattr(group, "COMPILED_ELEMENTS", compiled_elements)
    monkeypatch.setattr(error_feedback, "ROWS", 70)
    monkeypatch.setattr(error_feedback, "INVERTED", 16)
    rng, scheme = np.random.default_rng(0), SCHEMES[name]
    x = correlated_inputs(rng)
    weight = rng.standard_normal((150, INPUTS)).astype(np.float16).astype(np.float32)
    made = encode(weight, x.T @ x, scheme)
    got = group.decode(made, scheme, INPUTS).astype(np.float64)
    expected = reference(weight, x.T @ x, group.scale_values(made["q_scale"], scheme), scheme.levels.astype(np.float64))
    close = np.abs(got - expected) < 1e-3
    assert close.mean() > 0.995  # a tie that rounds the other way in float32 changes what follows it in its row


def test_the_error_in_the_result_falls():
    rng, scheme = np.random.default_rng(1), SCHEMES["q4f16_nl"]
    x = correlated_inputs(rng)
    weight = rng.standard_normal((24, INPUTS)).astype(np.float32)
    plain = group.encode(weight, scheme)
    errors = [
        np.square(x @ (group.decode(made, scheme, INPUTS).astype(np.float32) - weight).T).sum()
        for made in (plain, encode(weight, x.T @ x, scheme))
    ]
    assert errors[1] < 0.3 * errors[0]


@pytest.mark.parametrize("inverted", [16, 256])
def test_the_factor_and_inputs_that_are_always_zero(inverted, monkeypatch):
    monkeypatch.setattr(error_feedback, "INVERTED", inverted)
    x = correlated_inputs(np.random.default_rng(2))
    x[:, 7] = 0
    hessian = x.T @ x
    factor = inverse_factor(hessian).astype(np.float64)
    damped = hessian + DAMPING * np.diag(hessian).mean() * np.eye(INPUTS)
    assert (np.tril(factor, -1) == 0).all()
    np.testing.assert_allclose(factor.T @ factor @ damped, np.eye(INPUTS), atol=1e-4)
    assert np.isfinite(inverse_factor(np.zeros((4, 4)))).all()


@pytest.mark.parametrize("compiled_elements", [0, 1 << 30], ids=["compiled", "numpy"])
def test_groups_of_zeros_keep_their_zeros(compiled_elements, monkeypatch):
    monkeypatch.setattr(group, "COMPILED_ELEMENTS", compiled_elements)
    rng, scheme = np.random.default_rng(3), SCHEMES["q4f16_3"]
    weight = rng.standard_normal((3, INPUTS)).astype(np.float32)
    weight[1] = 0
    x = correlated_inputs(rng)
    back = group.decode(encode(weight, x.T @ x, scheme), scheme, INPUTS)
    assert (back[1] == 0).all() and (back[[0, 2]] != 0).any(axis=1).all()


def test_weights_that_float16_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="float16"):
        encode(np.full((2, 32), 1e6), np.eye(32), SCHEMES["q4f16_nl"])
