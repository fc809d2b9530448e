import numpy as np
import pytest

from mlc_compiler.relax.ops import OperatorError
from quantization.group import encode
from quantization.schemes import get_scheme
from tests.compiler.relax.check_op import check_op, run_op

RNG = np.random.default_rng(8)


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(("rows", "k", "n"), [((3,), 7, 5), ((1, 2), 9, 1), ((), 4, 3)])
def test_linear(rows, k, n):
    check_op("linear", normal(*rows, k), normal(n, k), reference=lambda x, w: x @ w.T)


def test_linear_with_bias_and_symbolic_rows():
    check_op("linear", normal(1, 6, 8), normal(5, 8), normal(5), reference=lambda x, w, b: x @ w.T + b, symbolic=(6,))


def test_linear_converts_weights_and_sums_in_float32():
    x, w = normal(2, 300, dtype="float16"), normal(3, 300, dtype="float32")
    wide = (x.astype(np.float64) @ w.astype(np.float64).T).astype(np.float16)
    check_op("linear", x, w, reference=lambda *_: wide, tolerance=1e-3)
    check_op("linear", normal(2, 5), normal(3, 5, dtype="float16"), reference=lambda a, b: a @ b.T.astype(np.float32))


def test_linear_inner_sizes():
    with pytest.raises(OperatorError, match=r"inner sizes of \(2, 5\) and \(3, 4\) differ: got 5 and 4"):
        run_op("linear", normal(2, 5), normal(3, 4))


@pytest.mark.parametrize(
    ("a", "b"),
    [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,))],
)
def test_matmul(a, b):
    check_op("matmul", normal(*a), normal(*b), reference=lambda x, y: np.asarray(x @ y), tolerance=1e-5)


def test_matmul_out_dtype():
    check_op(
        "matmul",
        normal(2, 3),
        normal(3, 2),
        reference=lambda a, b: (a @ b).astype("float16"),
        out_dtype="float16",
        tolerance=1e-3,
    )


def test_rms_norm():
    def reference(x, w):
        return (x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5) * w).astype(np.float32)

    check_op("nn.rms_norm", normal(2, 3, 7), normal(7), reference=reference, epsilon=1e-5, symbolic=(3,))
    check_op("nn.rms_norm", normal(5), normal(5, dtype="float16"), reference=reference, epsilon=1e-5)


@pytest.mark.parametrize("shape", [(4, 9), (9,)])
def test_layer_norm(shape):
    def reference(x, gamma, beta):
        centered = x - x.mean(-1, keepdims=True)
        return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-3) * gamma + beta

    check_op("nn.layer_norm", normal(*shape), normal(9), normal(9), reference=reference, epsilon=1e-3, tolerance=1e-5)
    check_op(
        "nn.layer_norm",
        normal(*shape),
        normal(9),
        reference=lambda x, gamma: reference(x, gamma, np.float32(0)),
        epsilon=1e-3,
        tolerance=1e-5,
    )


def test_norm_over_two_axes():
    def reference(x, w):
        return x / np.sqrt((x**2).mean((-2, -1), keepdims=True) + 1e-5) * w

    check_op("nn.rms_norm", normal(2, 3, 4), normal(3, 4), reference=reference, axes=(-2, -1), tolerance=1e-5)


def test_norm_of_leading_axes_is_refused():
    with pytest.raises(OperatorError, match="expected the last 1 of 2 axes"):
        run_op("nn.rms_norm", normal(3, 4), normal(3), axes=(0,))


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(axis):
    def reference(x):
        e = np.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    check_op("nn.softmax", 50 * normal(3, 4, 5), reference=reference, axis=axis, tolerance=1e-5)


@pytest.mark.parametrize(
    "name", ["q4f16_1", "q4f16_0", "q3f16_1", "q3f16_0", "q5f16_3", "q6f16_3", "q8f16_1", "q4f32_1"]
)
def test_dequantize_undoes_the_stored_form(name):
    scheme = get_scheme(name)
    weight = normal(5, 83)
    stored = encode(weight, scheme)
    got = run_op(
        "dequantize",
        stored["q_weight"],
        stored["q_scale"],
        bits=scheme.bits,
        group=scheme.group,
        k=83,
        layout=scheme.layout,
        dtype="float32",
    )
    steps = stored["q_scale"].astype(np.float32)
    steps = steps.T if scheme.layout == "KN" else steps
    per_weight = np.repeat(steps, scheme.group, axis=1)[:, :83]
    assert got.shape == (5, 83)
    assert np.abs(got - weight).max() <= np.abs(0.51 * per_weight + 2e-3).max()
    assert np.allclose(np.rint(got / per_weight), got / per_weight, atol=1e-4)


def test_dequantize_of_a_stack_of_matrices():
    scheme = get_scheme("q4f16_1")
    weight = normal(2, 3, 40)
    stored = encode(weight, scheme)
    attrs = {"bits": 4, "group": 32, "k": 40, "dtype": "float32"}
    whole = run_op("dequantize", stored["q_weight"], stored["q_scale"], **attrs)
    second = run_op("dequantize", stored["q_weight"][1], stored["q_scale"][1], **attrs)
    assert np.array_equal(whole[1], second)


def test_dequantize_checks_the_number_of_groups():
    q, scale = np.zeros((3, 4), np.uint32), np.zeros((3, 2), np.float16)
    with pytest.raises(OperatorError, match=r"scale: got \(2\) groups; expected 1"):
        run_op("dequantize", q, scale, bits=4, group=32, k=32)
