import numpy as np
import pytest

from mlc_compiler.relax.nodes import constant
from mlc_compiler.relax.ops import OperatorError, get_operator
from tests.compiler.relax.check_op import check_op, run_op

RNG = np.random.default_rng(9)


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def exactly(name, *args, reference, symbolic=(), **attrs):
    check_op(name, *args, reference=reference, symbolic=symbolic, tolerance=0, **attrs)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((6, 4), (2, 12)),
        ((2, 3, 4), (24,)),
        ((1, 5, 12), (5, 3, 4)),
        ((5, 3, 4), (1, 5, 12)),
        ((4, 6), (-1, 8)),
        ((1,), ()),
        ((), (1, 1)),
    ],
)
def test_reshape(old, new):
    exactly("reshape", normal(*old), new, reference=lambda x, s: x.reshape(s))


def test_reshape_of_symbolic_rows():
    exactly("reshape", normal(1, 7, 12), (-1, 3, 4), reference=lambda x, s: x.reshape(s), symbolic=(7,))


def test_reshape_to_another_number_of_elements():
    with pytest.raises(OperatorError, match=r"\(2, 3\) has 6 elements, \(4\) has 4"):
        run_op("reshape", normal(2, 3), (4,))


@pytest.mark.parametrize("axes", [None, (0, 2, 1), (2, 0, 1), (-1, 0, 1)])
def test_permute_dims(axes):
    exactly("permute_dims", normal(2, 3, 4), reference=lambda x: x.transpose(axes), axes=axes)


def test_expand_and_squeeze():
    exactly("expand_dims", normal(2, 3), reference=lambda x: np.expand_dims(x, (0, 2)), axis=(0, 2))
    exactly("expand_dims", normal(2, 3), reference=lambda x: np.expand_dims(x, -1), axis=-1)
    exactly("squeeze", normal(1, 3, 1), reference=np.squeeze)
    exactly("squeeze", normal(1, 3, 1), reference=lambda x: x.squeeze(2), axis=-1)
    with pytest.raises(OperatorError, match="expected axes of size 1"):
        run_op("squeeze", normal(2, 3), axis=0)


def test_broadcast_to():
    exactly("broadcast_to", normal(3, 1), (2, 3, 4), reference=np.broadcast_to)


@pytest.mark.parametrize(("cut", "axis"), [(3, 0), (2, -1), ((1, 4), 1), ((2,), 0)])
def test_split(cut, axis):
    exactly(
        "split", normal(6, 8), reference=lambda x: tuple(np.split(x, cut, axis)), indices_or_sections=cut, axis=axis
    )


def test_split_into_unequal_parts_is_refused():
    with pytest.raises(OperatorError, match=r"axis 1 of \(2, 5\) has no 2 equal parts"):
        run_op("split", normal(2, 5), indices_or_sections=2, axis=1)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis):
    parts = [normal(*[n if a == axis % 3 else 3 for a in range(3)]) for n in (2, 1, 4)]
    exactly("concat", parts, reference=lambda xs: np.concatenate(xs, axis), axis=axis)


@pytest.mark.parametrize(("axis", "shape"), [(0, (3,)), (1, (2, 2)), (-1, (1,)), (0, ())])
def test_take(axis, shape):
    indices = RNG.integers(0, 4, shape).astype(np.int32)
    exactly("take", normal(4, 4), np.asarray(indices), reference=lambda x, i: x.take(i, axis), axis=axis)


def test_take_keeps_indices_inside():
    indices = np.array([-5, 2, 99], np.int32)
    exactly("take", normal(4, 2), indices, reference=lambda x, i: x.take(i, 0, mode="clip"), axis=0)


def test_take_of_symbolic_rows():
    indices = np.array([6, 0], np.int64)
    exactly("take", normal(7, 2), indices, reference=lambda x, i: x[i], axis=0, symbolic=(7, 2))


def test_constants_without_axes():
    number = constant(np.array(2.5, np.float32))
    exactly("permute_dims", number, reference=lambda x: np.float32(2.5))
    exactly("reshape", number, (1, 1), reference=lambda x, s: np.full((1, 1), 2.5, np.float32))
    exactly("broadcast_to", number, (2, 3), reference=lambda x, s: np.full((2, 3), 2.5, np.float32))
    exactly("take", normal(4, 2), constant(np.array(3, np.int32)), reference=lambda x, i: x[3], axis=0)
    with pytest.raises(OperatorError, match="expected the same number of axes, at least one"):
        run_op("concat", [number, number], axis=0)


def test_gather_elements_inside_of_the_other_axes():
    x, places = normal(4, 3), np.array([[3, 0], [1, 9]])
    wanted = np.array([[x[3, 0], x[0, 1]], [x[1, 0], x[3, 1]]])
    exactly("gather_elements", x, places, reference=lambda x, i: wanted, axis=0)
    with pytest.raises(OperatorError, match="sizes on axis 0 differ: got 4 and 5"):
        run_op("gather_elements", x, np.zeros((5, 2), np.int64), axis=1)


@pytest.mark.parametrize("symbolic", [(), (4,)])
def test_scatter_elements_applies_repeated_indices_in_order(symbolic):
    """Indices from the end, out of range, repeated; fewer than data has on the other axis."""
    data, places = normal(4, 3), np.array([[-1, 0], [3, 7], [3, -5]])
    updates = normal(3, 2)

    def written(x, i, u):
        result = x.copy()
        result[3, 0], result[0, 1] = u[2, 0], u[0, 1]
        return result

    def added(x, i, u):
        result = x.copy()
        result[3, 0], result[0, 1] = x[3, 0] + u[0, 0] + u[1, 0] + u[2, 0], x[0, 1] + u[0, 1]
        return result

    exactly("scatter_elements", data, places, updates, reference=written, symbolic=symbolic, axis=0)
    exactly("scatter_elements", data, places, updates, reference=added, symbolic=symbolic, axis=0, reduction="add")


def test_scatter_elements_refuses_what_does_not_fit():
    x, places = normal(4, 3), np.zeros((2, 3), np.int64)
    with pytest.raises(OperatorError, match="reduction: got 'mean'; expected one of update, add, mul, max, min"):
        run_op("scatter_elements", x, places, normal(2, 3), reduction="mean")
    with pytest.raises(OperatorError, match="updates: got int64; expected float32, the dtype of data"):
        run_op("scatter_elements", x, places, places)
    with pytest.raises(OperatorError, match="sizes of indices and updates on axis 0 differ: got 2 and 4"):
        run_op("scatter_elements", x, places, x)


@pytest.mark.parametrize("symbolic", [(), (4,)])
def test_scatter_nd_applies_repeated_indices_in_order(symbolic):
    """Indices from the end, out of range, repeated."""
    data, updates, places = normal(4, 3), normal(4, 3), np.array([[3], [-1], [4], [1]])

    def written(x, i, u):
        return np.stack([x[0], u[3], x[2], u[1]])

    def added(x, i, u):
        return np.stack([x[0], x[1] + u[3], x[2], x[3] + u[0] + u[1]])

    exactly("scatter_nd", data, places, updates, reference=written, symbolic=symbolic)
    exactly("scatter_nd", data, places, updates, reference=added, symbolic=symbolic, reduction="add")


def test_scatter_nd_refuses_what_does_not_fit():
    x, places = normal(4, 3), np.zeros((2, 1), np.int64)
    with pytest.raises(OperatorError, match=r"indices: got shape \(2, 3\); expected 1 to 2 on the last axis"):
        run_op("scatter_nd", x, np.zeros((2, 3), np.int64), normal(2))
    with pytest.raises(OperatorError, match="sizes of updates on axis 1"):
        run_op("scatter_nd", x, places, normal(2, 4))
    with pytest.raises(OperatorError, match=r"updates: got shape \(2\); expected \(2, 3\)"):
        run_op("scatter_nd", x, places, normal(2))
    with pytest.raises(OperatorError, match="updates: got int64; expected float32"):
        run_op("scatter_nd", x, places, np.zeros((2, 3), np.int64))


def test_take_from_an_empty_axis():
    places = np.zeros((2, 3), np.int32)
    exactly("gather_elements", normal(0, 3), places, reference=lambda x, i: np.zeros((2, 3), x.dtype), axis=0)
    indices = np.array([6, 0], np.int64)
    exactly("take", normal(7, 0), indices, reference=lambda x, i: np.zeros((7, 2), x.dtype), axis=1)
    exactly("take", normal(0, 3), indices, reference=lambda x, i: np.zeros((2, 3), x.dtype), axis=0, symbolic=(0,))


@pytest.mark.parametrize(
    ("axes", "begin", "end", "strides", "wanted"),
    [
        ((0,), (1,), (4,), (), np.s_[1:4]),
        ((1,), (0,), (8,), (3,), np.s_[:, 0:8:3]),
        ((0, 1), (-3, 2), (-1, 100), (1, 2), np.s_[-3:-1, 2:100:2]),
        ((1,), (5,), (2,), (), np.s_[:, 5:2]),
    ],
)
def test_strided_slice(axes, begin, end, strides, wanted):
    exactly("strided_slice", normal(6, 8), axes, begin, end, strides, reference=lambda x, *_: x[wanted])


def test_triangles():
    exactly("triu", normal(4, 5), reference=lambda x: np.triu(x, 1), k=1)
    exactly("tril", normal(2, 4, 4), reference=lambda x: np.tril(x, -1), k=-1)


def test_creation():
    exactly("zeros", (2, 3), reference=lambda s: np.zeros(s, "float16"), dtype="float16")
    exactly("ones", (2,), reference=lambda s: np.ones(s, "int32"), dtype="int32")
    exactly("full", (2, 2), 2.5, reference=lambda s, v: np.full(s, v, "float32"), dtype="float32")
    for limits in ((2, 11, 3), (9, -9, -1), (10, -9, -2), (4, 4, 1), (5, 2, 1), (2, 5, -1)):
        exactly("arange", *limits, reference=lambda *r: np.arange(*r, dtype="int32"), dtype="int32")
    with pytest.raises(OperatorError, match="step: got 0"):
        run_op("arange", 2, 11, 0, dtype="int32")


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sum_max_min_mean(axis, keepdims):
    for name, f in (("sum", np.sum), ("max", np.max), ("min", np.min), ("mean", np.mean)):
        check_op(
            name,
            normal(3, 4, 5),
            reference=lambda x, f=f: np.asarray(f(x, axis=axis, keepdims=keepdims), np.float32),
            axis=axis,
            keepdims=keepdims,
            tolerance=1e-5,
        )


def test_sum_of_narrow_floats_is_float32_inside():
    x = np.full((1, 4096), 1.0, np.float16)
    exactly("sum", x, reference=lambda _: np.array([4096], np.float16), axis=1)


def test_variance():
    check_op("variance", normal(3, 9), reference=lambda x: x.var(1), axis=1, tolerance=1e-5)


def test_argmax_and_argmin():
    x = np.array([[3, 7, 7, 1], [2, 0, 2, 0]], np.float32)
    exactly("argmax", x, reference=lambda a: a.argmax(1), axis=1)
    exactly("argmin", x, reference=lambda a: a.argmin(1, keepdims=True), axis=1, keepdims=True)
    exactly("argmax", x[:, ::-1], reference=lambda a: np.array(a.argmax()), axis=None)
    exactly("argmin", x, reference=lambda a: a.argmin(keepdims=True), axis=None, keepdims=True)


def test_cumsum():
    check_op("cumsum", normal(3, 5), reference=lambda x: x.cumsum(0), axis=0, tolerance=1e-5)
    check_op("cumsum", normal(3, 5), reference=lambda x: x.cumsum(), tolerance=1e-5)
    check_op("cumsum", normal(2, 5, 4), reference=lambda x: x.cumsum(1), axis=-2, tolerance=1e-5, symbolic=(2, 5))
    half = normal(2, 40).astype(np.float16)
    check_op("cumsum", half, reference=lambda x: x.astype("f4").cumsum(1).astype("f2"), axis=1, tolerance=1e-3)
    x = np.arange(5, dtype=np.int32)
    exactly("cumprod", x + 1, reference=lambda a: np.array([1, 1, 2, 6, 24], "int32"), axis=0, exclusive=True)
    check_op("cumprod", normal(3, 5), reference=lambda x: x.cumprod(1), axis=1, tolerance=1e-5)
    exactly("cumsum", x, reference=lambda a: a.cumsum(dtype="int64") - a, axis=0, dtype="int64", exclusive=True)


def test_unknown_operator():
    with pytest.raises(OperatorError, match="unknown operator 'adds'"):
        get_operator("adds")


@pytest.mark.parametrize(
    ("name", "attrs", "message"),
    [
        ("sum", {"axis": 2}, "axis: got 2; expected -2 to 1"),
        ("sum", {"axis": (0, -2)}, r"axes: got \[0, -2\]; expected each at most once"),
        ("argmax", {"axis": -3}, "axis: got -3; expected -2 to 1"),
        ("cumsum", {"axis": 5}, "axis: got 5; expected -2 to 1"),
        ("nn.softmax", {"axis": 9}, "axis: got 9; expected -2 to 1"),
        ("expand_dims", {"axis": 3}, "axis: got 3; expected -3 to 2"),
        ("flip", {"axis": 1.5}, "axis: got 1.5; expected int"),
        ("permute_dims", {"axes": ("a", 0)}, r"axes: got \('a', 0\); expected tuple\[int, ...\] \| None"),
        ("astype", {"dtype": "floaty"}, "unknown dtype 'floaty'"),
        ("split", {"indices_or_sections": 0}, "no 0 equal parts"),
    ],
)
def test_invalid_attributes(name, attrs, message):
    with pytest.raises(OperatorError, match=message):
        run_op(name, normal(2, 3), **attrs)


def test_a_tensor_without_axes_has_no_axis():
    with pytest.raises(OperatorError, match="expected a tensor with axes"):
        run_op("argmax", normal())


def test_arguments_that_are_no_graph_values():
    with pytest.raises(OperatorError, match="exp: argument x: got str; expected a graph value, shape or number"):
        get_operator("exp")("a")
    with pytest.raises(OperatorError, match="concat: argument tensors: got str"):
        get_operator("concat")("ab")
