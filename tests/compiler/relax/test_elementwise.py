import math

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.relax.info import scalar_constant
from mlc_compiler.relax.ops import OperatorError
from tests.compiler.relax.check_op import arrays_in, check_op, graph_of, run_op

RNG = np.random.default_rng(7)


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def integers(*shape, low=-9, high=9, dtype="int32"):
    return RNG.integers(low, high, shape).astype(dtype)


def positive(*shape, dtype="float32"):
    return RNG.uniform(0.1, 4, shape).astype(dtype)


def erf(x):
    return np.vectorize(math.erf)(x).astype(x.dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


UNARY = {
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": erf,
    "exp": np.exp,
    "floor": np.floor,
    "negative": np.negative,
    "nn.gelu": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(x.dtype.type(2)))),
    "nn.gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(x.dtype.type(2 / np.pi)) * (x + 0.044715 * x**3))),
    "nn.relu": lambda x: np.maximum(x, 0),
    "nn.silu": lambda x: x * sigmoid(x),
    "round": np.round,
    "sigmoid": sigmoid,
    "sin": np.sin,
    "tanh": np.tanh,
}
UNARY_OF_POSITIVE = {"log": np.log, "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt}
FLOAT_BINARY = {
    "add": np.add,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "subtract": np.subtract,
}
COMPARISONS = {
    "equal": np.equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "not_equal": np.not_equal,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    check_op(name, 3 * normal(3, 7), reference=UNARY[name], tolerance=1e-5)


@pytest.mark.parametrize("name", UNARY_OF_POSITIVE)
def test_unary_of_positive(name):
    check_op(name, positive(5), reference=UNARY_OF_POSITIVE[name])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_computed_in_float32(dtype):
    narrow = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x = normal(11).astype(narrow)
    wide = x.astype(np.float32)
    check_op("nn.silu", x, reference=lambda _: (wide * sigmoid(wide)).astype(narrow), tolerance=0)


@pytest.mark.parametrize("name", FLOAT_BINARY)
def test_binary_with_broadcasting(name):
    check_op(name, normal(4, 1, 5), normal(3, 1), reference=FLOAT_BINARY[name])


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_give_bool(name):
    check_op(name, integers(4, 6, low=0, high=3), integers(6, low=0, high=3), reference=COMPARISONS[name])


def test_integer_division_rounds_down():
    divisor = np.array([3, -3, 2, 5], np.int32)
    check_op("floor_divide", integers(6, 4), divisor, reference=np.floor_divide)
    check_op("floor_mod", integers(6, 4), divisor, reference=np.mod)
    x, y = normal(6, 4), normal(6, 1)
    check_op("floor_divide", x, y, reference=np.floor_divide)
    check_op("floor_mod", x, y, reference=np.mod, tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "uint64"])
def test_absolute_values_of_unsigned_numbers(dtype):
    check_op("abs", np.array([0, 1, 127, 128, 255], dtype), reference=np.abs)


def test_power():
    check_op("power", positive(3, 4), normal(4), reference=np.power, tolerance=1e-5)


def test_logic():
    a, b = integers(8, low=0, high=2).astype(bool), integers(8, low=0, high=2).astype(bool)
    check_op("logical_and", a, b, reference=np.logical_and)
    check_op("logical_or", a, b, reference=np.logical_or)
    check_op("logical_not", a, reference=np.logical_not)


def test_mixed_types_take_the_wider_one():
    check_op("add", normal(3), normal(3, dtype="float16"), reference=lambda a, b: a + b.astype(np.float32))


def test_number_takes_the_type_of_the_tensor():
    check_op("multiply", normal(3, dtype="float16"), 0.5, reference=lambda a, b: a * np.float16(b))
    check_op("subtract", 1, integers(3), reference=lambda a, b: np.int32(a) - b)


def test_scalar_constant_becomes_part_of_the_function():
    mod = graph_of("add", [normal(3), scalar_constant(2.5, "float32")])
    assert len(mod["main"].params) == 1


def test_symbolic_sizes():
    check_op("add", normal(5, 3), normal(5, 3), reference=np.add, symbolic=(5,))


@pytest.mark.parametrize(("source", "target"), [("float32", "float16"), ("float32", "int32"), ("int32", "float32")])
def test_astype(source, target):
    check_op("astype", (5 * normal(9)).astype(source), reference=lambda x: x.astype(target), dtype=target)


def test_where():
    check_op("where", np.array([True, False, True]), normal(2, 3), normal(3), reference=np.where)
    with pytest.raises(OperatorError, match="where.*: condition: got float32; expected bool"):
        run_op("where", normal(3), normal(3), normal(3))


def test_clip():
    check_op("clip", normal(9), reference=lambda x: np.clip(x, -0.5, 0.25), min=-0.5, max=0.25)


def test_shapes_that_do_not_broadcast():
    with pytest.raises(OperatorError, match=r"add\(float32\(3, 4\), float32\(5\)\): sizes to broadcast on axis 1"):
        run_op("add", normal(3, 4), normal(5))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "floor_divide"])
def test_truth_values_have_no_arithmetic(name):
    flags = np.array([True, False])
    with pytest.raises(OperatorError, match=rf"{name}\(bool\(2\), bool\(2\)\): '.*' takes numbers; got truth values"):
        run_op(name, flags, flags)
    check_op("add", flags, np.array([3, 4]), reference=np.add)


def test_attributes_may_be_numbers_of_numpy():
    check_op("permute_dims", normal(2, 3), reference=np.transpose, axes=tuple(np.argsort([1, 0])))


def test_wrong_attribute():
    with pytest.raises(OperatorError, match="astype: missing attribute dtype"):
        run_op("astype", normal(3))
    with pytest.raises(OperatorError, match="nn.relu: unknown attribute axis; its attributes are none"):
        run_op("nn.relu", normal(3), axis=1)


def test_wrong_number_of_arguments():
    with pytest.raises(OperatorError, match=r"add: got 1 arguments; expected \(x, y\)"):
        run_op("add", normal(3))


NAN = np.array([1, np.nan, -3, 9, np.nan, -0.25], np.float32)
OTHER = np.array([2, 1, np.nan, -4, np.nan, 0.5], np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize(
    ("name", "args", "attrs", "reference"),
    [
        ("maximum", (NAN, OTHER), {}, np.maximum),
        ("minimum", (NAN, OTHER), {}, np.minimum),
        ("maximum", (NAN, 0.5), {}, np.maximum),
        ("minimum", (0.5, NAN), {}, np.minimum),
        ("minimum", (OTHER, math.nan), {}, np.minimum),
        ("maximum", (math.nan, OTHER), {}, np.maximum),
        ("clip", (NAN,), {"min": -1.0, "max": 2.0}, lambda x: np.clip(x, -1, 2)),
        ("nn.relu", (NAN,), {}, lambda x: np.maximum(x, 0)),
        ("nn.relu6", (NAN,), {}, lambda x: np.clip(x, 0, 6)),
    ],
)
def test_compiled_limits_keep_nan(name, args, attrs, reference, dtype):
    args = [a.astype(dtype) if isinstance(a, np.ndarray) else a for a in args]
    got = build(graph_of(name, args, attrs))["main"](*arrays_in(args))
    np.testing.assert_array_equal(np.asarray(got), reference(*args))
