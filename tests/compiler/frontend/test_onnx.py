"""ONNX models against onnx's reference evaluator: every row of the table, symbolic sizes, computed shapes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from transformers import ViTConfig, ViTModel

from mlc_compiler import build
from mlc_compiler.frontend.onnx import Imported, ImportModelError, from_onnx
from mlc_compiler.frontend.onnx.operators import ROWS
from tests.compiler.frontend.imports import compare, outputs
from tests.compiler.frontend.test_torch_models import SMALL

RNG = np.random.default_rng(4)
KINDS = {
    "float32": TensorProto.FLOAT,
    "int8": TensorProto.INT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint32": TensorProto.UINT32,
    "bool": TensorProto.BOOL,
}


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def codes(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape, np.int8)


X, Y, POSITIVE = normal(2, 4, 6), normal(2, 4, 6), np.abs(normal(2, 4, 6)) + np.float32(0.5)
IMAGE, PLACES = normal(2, 4, 7, 9), RNG.integers(-3, 3, (2, 3))
FEEDS = {
    "x": X,
    "y": Y,
    "p": POSITIVE,
    "image": IMAGE,
    "even": normal(4, 4, 2, 6),
    "small": normal(1, 2, 2, 3),
    "volume": normal(1, 2, 4, 5, 6),
    "special": np.float32([np.inf, -np.inf, np.nan, 1.5]),
    "i": PLACES,
    "codes": codes(2, 4, 6),
    "pixels": codes(2, 4, 7, 9),
    "words": RNG.integers(0, 2**32, (3, 5), np.uint32),
    "t": X > 0,
    "u": Y > 0,
}

UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish Identity LeakyRelu
    LpNormalization Mish Neg Relu Round Selu Sigmoid Sign Sin Sinh Softplus Tan Tanh"""
BINARY = "Add Sub Mul Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min"
BITWISE = "BitwiseAnd BitwiseOr BitwiseXor"
REDUCTIONS = "ReduceLogSumExp ReduceMax ReduceMin ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceSumSquare"

OUTPUT_SHAPE = {"strides": [2, 3], "auto_pad": "SAME_UPPER", "output_shape": [14, 25]}
UNITS, RESULT = (np.float32(0.37), np.int8(5)), (np.float32(0.61), np.int8(4))
COLUMNS = (np.float32([0.004, 0.002, 0.006]), np.int8([2, 0, -7]))
UNPOOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
HEADS = {"q_num_heads": 2, "kv_num_heads": 1, "is_causal": 1}
REVERSED = {"hidden_size": 3, "direction": "reverse", "layout": 1}

Case = tuple[str, Sequence[Any], Mapping[str, Any]]
"""An operator; its inputs, names of ``FEEDS`` or arrays; its attributes."""
CASES: list[Case] = [
    *((name, ["x"], {}) for name in UNARY.split()),
    *((name, ["p"], {}) for name in ("Log", "Sqrt", "Reciprocal")),
    *((name, ["x", "y"], {}) for name in BINARY.split()),
    *((name, ["x", ints(1)], {"keepdims": 0}) for name in REDUCTIONS.split()),
    *((name, ["t", "u"], {}) for name in ("And", "Or", "Xor")),
    *((name, ["i", ints(5, -3, 2)], {}) for name in BITWISE.split()),
    ("BitwiseNot", ["i"], {}),
    ("BitShift", ["words", np.uint32(3)], {"direction": "LEFT"}),
    ("BitShift", ["words", np.arange(5, dtype=np.uint32)], {"direction": "RIGHT"}),
    ("Not", ["t"], {}),
    ("Dropout", ["x"], {}),
    ("IsInf", ["special"], {"detect_negative": 0}),
    ("IsNaN", ["special"], {}),
    ("Mean", ["x", "y", "p"], {}),
    ("Mod", ["i", ints(2, -3, 4)], {}),
    ("Mod", ["x", "p"], {"fmod": 1}),
    ("Sum", ["x", "y", "p"], {}),
    ("Pow", ["p", np.float32(1.5)], {}),
    ("Div", ["i", ints(2)], {}),
    ("Div", ["words", np.uint32(7)], {}),
    ("Gelu", ["x"], {"approximate": "tanh"}),
    ("ReduceSum", ["x", ints(0, 2)], {}),
    ("ReduceSum", ["x"], {"keepdims": 0}),
    ("ReduceLogSum", ["p", ints(1)], {}),
    ("CumSum", ["x", np.int64(1)], {"exclusive": 1, "reverse": 1}),
    ("InstanceNormalization", ["image", normal(4), normal(4)], {}),
    ("LpNormalization", ["p"], {"axis": 1, "p": 1}),
    ("LpNormalization", [np.zeros((2, 3), np.float32)], {}),
    ("PRelu", ["x", normal(4, 1)], {}),
    ("ArgMax", ["x"], {"axis": 1}),
    ("ArgMin", ["x"], {"axis": -1, "keepdims": 0}),
    ("BatchNormalization", ["image", *normal(3, 4), np.abs(normal(4))], {}),
    ("Cast", ["x"], {"to": TensorProto.INT64}),
    ("Cast", ["special"], {"to": TensorProto.FLOAT8E5M2}),
    ("Cast", ["special"], {"to": TensorProto.FLOAT8E4M3FN, "saturate": 0}),
    ("Clip", ["x", np.float32(-0.5), np.float32(0.5)], {}),
    ("Concat", ["x", "y"], {"axis": -1}),
    ("Expand", [normal(1, 6), ints(3, 2, 1)], {}),
    ("Flatten", ["image"], {"axis": 2}),
    ("Gather", ["x", "i"], {"axis": 1}),
    ("GatherElements", ["x", RNG.integers(-4, 4, (2, 2, 6))], {"axis": 1}),
    ("GatherND", ["image", RNG.integers(-2, 2, (3, 5, 2))], {}),
    ("GatherND", ["image", RNG.integers(-4, 4, (2, 3, 1))], {"batch_dims": 1}),
    ("OneHot", ["i", np.int64(2), np.float32([0.5, 2])], {"axis": 1}),
    ("Einsum", ["x", "y"], {"equation": "bij, bkj -> bik"}),
    ("Einsum", ["x", "y"], {"equation": "...ij,...ij->i..."}),
    ("Einsum", ["image", "y", normal(9)], {"equation": "A...d,Aij,d"}),
    ("Einsum", ["x"], {"equation": "cba"}),
    ("DepthToSpace", ["image"], {"blocksize": 2}),
    ("DepthToSpace", ["image"], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", ["even"], {"blocksize": 2}),
    ("GridSample", ["image", normal(2, 3, 5, 2)], {}),
    ("GridSample", ["image", normal(2, 3, 5, 2)], {"mode": "nearest", "padding_mode": "border", "align_corners": 1}),
    ("Hardmax", ["x"], {"axis": 1}),
    ("Gemm", [normal(6, 3), normal(5, 6), normal(5)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [normal(3, 6), normal(6, 5)], {}),
    ("LayerNormalization", ["x", normal(4, 6), normal(4, 6)], {"axis": 1}),
    ("LogSoftmax", ["x"], {"axis": 1}),
    ("Softmax", ["x"], {}),
    ("MatMul", ["x", normal(6, 3)], {}),
    ("Pad", ["x", ints(0, 1, 0, 2, 0, 3), np.float32(1.5)], {}),
    ("Reshape", ["x", ints(0, -1, 3)], {}),
    ("Pad", ["x", ints(2, 1, 3, 0), "", ints(2, 1)], {"mode": "reflect"}),
    ("Pad", ["x", ints(0, 1, 0, 2, 0, 3)], {"mode": "edge"}),
    ("Pad", ["x", ints(0, 1, 0, 2, 0, 3)], {"mode": "wrap"}),
    ("Slice", ["x", ints(1, -3), ints(4, 2**63 - 1), ints(1, 2), ints(2, 1)], {}),
    ("Slice", ["x", ints(-1, 4), ints(-(2**63), 0), ints(1, 2), ints(-1, -2)], {}),
    ("Split", ["x", ints(1, 3)], {"axis": 1}),
    ("Split", ["image"], {"axis": 2, "num_outputs": 2}),
    ("Resize", ["image", "", np.float32([1, 1, 1.7, 0.6])], {"mode": "linear"}),
    ("Resize", ["image", "", "", ints(2, 4, 5, 13)], {"mode": "cubic"}),
    ("Resize", ["image", "", "", ints(2, 4, 10, 4)], {"coordinate_transformation_mode": "asymmetric"}),
    (
        "Resize",
        ["image", "", "", ints(2, 4, 10, 4)],
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    ("Resize", ["image", "", np.float32([0.6, 0.4])], {"mode": "linear", "antialias": 1, "axes": [2, 3]}),
    ("Resize", ["image", "", np.float32([1, 1, 1.5, 0.5])], {"mode": "cubic", "exclude_outside": 1}),
    ("Resize", ["image", "", "", ints(5, 13)], {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}),
    (
        "Resize",
        ["image", "", np.float32([1, 1, 1.7, 0.6])],
        {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
    ),
    (
        "ScatterElements",
        ["x", RNG.permuted(np.tile(np.arange(-2, 2)[:3, None], (2, 1, 6)), axis=1), normal(2, 3, 6)],
        {"axis": 1},
    ),
    ("ScatterElements", ["x", RNG.integers(0, 4, (2, 2, 6)), normal(2, 2, 6)], {"axis": 1, "reduction": "add"}),
    ("ScatterND", ["x", np.array([[[1, 3], [0, -1]]]), normal(1, 2, 6)], {}),
    ("ScatterND", ["x", ints(1, 1, 0)[:, None], normal(3, 4, 6)], {"reduction": "add"}),
    ("Squeeze", [normal(2, 1, 3), ints(1)], {}),
    ("Unsqueeze", ["x", ints(0, -1)], {}),
    ("Tile", ["x", ints(1, 2, 3)], {}),
    ("TopK", ["x", ints(2)], {"axis": 1}),
    ("Transpose", ["x"], {"perm": [2, 0, 1]}),
    ("Trilu", ["x", np.int64(1)], {"upper": 0}),
    ("Where", ["t", "x", np.float32(0.5)], {}),
    ("AveragePool", ["image"], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ("AveragePool", ["volume"], {"kernel_shape": [2, 2, 3], "auto_pad": "SAME_LOWER", "strides": [1, 2, 2]}),
    ("Conv", ["image", normal(6, 2, 3, 2), normal(6)], {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ("Conv", ["x", normal(3, 4, 3)], {"auto_pad": "SAME_UPPER"}),
    ("Conv", ["image", normal(6, 4, 4, 3)], {"auto_pad": "SAME_LOWER", "strides": [2, 3], "dilations": [1, 2]}),
    ("ConvTranspose", ["image", normal(4, 3, 3, 2), normal(3)], {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    ("ConvTranspose", ["x", normal(4, 3, 3)], {"strides": [2], "output_padding": [1], "dilations": [2]}),
    ("ConvTranspose", ["image", normal(4, 3, 3, 2)], {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    ("ConvTranspose", ["image", normal(4, 3, 3, 2)], OUTPUT_SHAPE),
    ("GlobalAveragePool", ["image"], {}),
    ("GlobalMaxPool", ["image"], {}),
    ("LpPool", ["image"], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "p": 3}),
    ("MaxPool", ["image"], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "storage_order": 1}),
    ("MaxPool", ["volume"], {"kernel_shape": [2, 2, 3], "strides": [2, 1, 2]}),
    ("MaxUnpool", ["small", ints(1, 9, 4, 12, 20, 23, 25, 33, 28, 42, 38, 47).reshape(1, 2, 2, 3)], UNPOOL),
    ("GroupNormalization", ["image", normal(4), normal(4)], {"num_groups": 2}),
    ("LRN", ["even"], {"size": 3, "alpha": 0.2, "beta": 0.6, "bias": 1.5}),
    ("RMSNormalization", ["x", normal(6)], {}),
    ("DequantizeLinear", ["codes", np.abs(normal(4)), np.int8([3, -5, 0, 100])], {"axis": 1}),
    ("DequantizeLinear", ["codes", np.float32(0.25)], {}),
    ("DequantizeLinear", ["codes", normal(2, 4, 2), codes(2, 4, 2)], {"axis": 2, "block_size": 4}),
    ("DequantizeLinear", [(codes(3, 5) >> 4).astype(ml_dtypes.int4), normal(3)], {"axis": 0}),
    ("QuantizeLinear", ["x", np.abs(normal(4)) / 50, np.int8([3, -5, 0, 100])], {"axis": 1}),
    ("QuantizeLinear", ["x", np.float32(0.01)], {}),
    ("QuantizeLinear", ["x", np.abs(normal(2, 2, 6)) / 50, codes(2, 2, 6)], {"axis": 1, "block_size": 2}),
    ("QuantizeLinear", ["x", np.float32(0.01)], {"output_dtype": TensorProto.INT8}),
    ("MatMulInteger", ["codes", codes(6, 3), np.int8(5), np.int8([2, 0, -7])], {}),
    ("ConvInteger", ["pixels", codes(6, 2, 3, 2), np.int8(5), np.int8(-3)], {"group": 2, "pads": [1, 0, 0, 1]}),
    ("QLinearMatMul", ["codes", *UNITS, codes(6, 3), *COLUMNS, *RESULT], {}),
    ("QLinearConv", ["pixels", *UNITS, codes(3, 4, 3, 2), *COLUMNS, *RESULT, np.int32([900, -5000, 70])], {}),
    ("Attention", ["image", normal(2, 2, 5, 9), normal(2, 2, 5, 3), normal(7, 5)], {"is_causal": 1}),
    ("Attention", ["image", normal(2, 4, 7, 9), normal(2, 4, 7, 3), normal(7, 7) > 0.5], {"is_causal": 1}),
    ("Attention", ["image", normal(2, 4, 7, 9), normal(2, 4, 7, 3), normal(7, 7)], {"softcap": 0.7}),
    ("Attention", ["x", normal(2, 3, 3), normal(2, 3, 2), "", normal(2, 1, 2, 3), normal(2, 1, 2, 2)], HEADS),
    ("GRU", ["x", normal(2, 9, 6), normal(2, 9, 3), normal(2, 18)], {"hidden_size": 3, "direction": "bidirectional"}),
    ("GRU", ["x", normal(1, 9, 6), normal(1, 9, 3), normal(1, 18)], {"hidden_size": 3, "linear_before_reset": 1}),
    ("LSTM", ["x", normal(2, 12, 6), normal(2, 12, 3)], {"hidden_size": 3, "direction": "bidirectional"}),
    ("LSTM", ["x", normal(1, 12, 6), normal(1, 12, 3), normal(1, 24), "", *normal(2, 2, 1, 3)], REVERSED),
    ("RNN", ["x", normal(1, 3, 6), normal(1, 3, 3), normal(1, 6)], {"hidden_size": 3}),
]
RESULTS = {"Attention": 3, "Dropout": 2, "GRU": 2, "LSTM": 3, "LayerNormalization": 3, "MaxPool": 2, "RNN": 2}
RESULTS |= {"Split": 2, "TopK": 2}
OF_SIZES = {"ConstantOfShape", "Range"}
"""Operators whose rows apply to symbolic sizes."""


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[Sequence[Any] | None, str]],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray],
    opset: int = 17,
) -> onnx.ModelProto:
    """An ONNX model. inputs: name -> (shape or None, dtype)."""
    given = [helper.make_tensor_value_info(name, KINDS[dtype], shape) for name, (shape, dtype) in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", given, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def every_case() -> tuple[onnx.ModelProto, list[str]]:
    """One model with all cases, and the operator of each output."""
    nodes, weights, outputs, kinds = [], {}, [], []
    for n, (op, inputs, attrs) in enumerate(CASES):
        names = [v if isinstance(v, str) else f"c{n}.{i}" for i, v in enumerate(inputs)]
        weights |= {name: v for name, v in zip(names, inputs, strict=True) if not isinstance(v, str)}
        results = [f"{op}{n}.{r}" for r in range(RESULTS.get(op, 1))]
        nodes.append(helper.make_node(op, names, results, **attrs))
        outputs += results
        kinds += [op] * len(results)
    return model_of(nodes, {k: (v.shape, str(v.dtype)) for k, v in FEEDS.items()}, outputs, weights, 23), kinds


def check(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], kinds: Sequence[str] = ()) -> Imported:
    """Assert that the compiled model's results equal those of the reference evaluator."""
    imported = from_onnx(model)
    got = build(imported.mod, num_threads=1)["main"](*feeds.values(), *imported.params.values())
    wanted = ReferenceEvaluator(model).run(None, dict(feeds))
    results = got if isinstance(got, list | tuple) else [got]
    for n, (a, b) in enumerate(zip(results, wanted, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), kinds[n : n + 1]
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=str(kinds[n : n + 1]))
    return imported


def test_every_row():
    assert {op for op, _, _ in CASES} == set(ROWS) - OF_SIZES
    model, kinds = every_case()
    check(model, FEEDS, kinds)


def test_forms_of_earlier_opsets():
    """Axes of reductions as an attribute, up to opset 17; scales of groups instead of channels, up to opset 20."""
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0)
    check(model_of([node], {"x": (X.shape, "float32")}, ["y"], {}, opset=13), {"x": X})
    node = helper.make_node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=2)
    weights = {"scale": normal(2), "bias": normal(2)}
    check(model_of([node], {"x": (X.shape, "float32")}, ["y"], weights, opset=18), {"x": X})


def test_shapes_are_computed_from_symbolic_sizes():
    """``x.reshape(x.shape[0], 2, -1)`` and an expansion, as exporters write them."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "zero1"], ["n1"]),
        helper.make_node("Mul", ["n1", "two"], ["twice"]),
        helper.make_node("Concat", ["n1", "two", "rest"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["x", "sizes"], ["halves"]),
        helper.make_node("Concat", ["twice", "six"], ["wide"], axis=0),
        helper.make_node("Expand", ["row", "wide"], ["rows"]),
        helper.make_node("Gemm", ["x", "w.0"], ["product"]),
    ]
    weights = {"zero": np.int64(0), "zero1": ints(0), "two": ints(2), "rest": ints(-1), "six": ints(6)}
    weights |= {"row": normal(6), "w.0": normal(6, 3)}
    model = model_of(nodes, {"x": (["n", 6], "float32")}, ["halves", "rows", "product"], weights)
    for n in (2, 5):
        imported = check(model, {"x": normal(n, 6)})
    assert list(imported.params) == ["row", "w_0"]
    compiled, bound = imported.jit(num_threads=1), from_onnx(model, keep_params=False)
    x = normal(3, 6)
    wanted = ReferenceEvaluator(model).run(None, {"x": x})
    for got in (compiled["main"](x), build(bound.mod, num_threads=1)["main"](x)):
        np.testing.assert_allclose(got[2], wanted[2], rtol=1e-5, atol=1e-5)


def test_sizes_are_computed_from_symbolic_sizes():
    """Every row for arrays with symbolic sizes that the test above lacks, and rows of results with such shapes."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], end=1),
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("ReduceProd", ["shape"], ["n"], keepdims=0),
        helper.make_node("Div", ["size", "n"], ["columns"]),
        helper.make_node("Max", ["shape", "three"], ["most"]),
        helper.make_node("Min", ["shape", "three"], ["least"]),
        helper.make_node("Mod", ["shape", "three"], ["rest"]),
        helper.make_node("Expand", ["shape", "three"], ["times"]),
        helper.make_node("ReduceProd", ["times"], ["cube"]),
        helper.make_node("Concat", ["most", "least", "rest", "cube"], ["sizes"], axis=0),
        helper.make_node("ConstantOfShape", ["sizes"], ["filled"], value=numpy_helper.from_array(np.float32([1.5]))),
        helper.make_node("Range", ["columns", "n", "two"], ["range"]),
    ]
    weights = {"three": ints(3), "two": np.int64(2)}
    model = model_of(nodes, {"x": (["n", 2], "float32")}, ["filled", "range"], weights)
    for n in (2, 5, 7):
        check(model, {"x": normal(n, 2)})


def test_constants_that_the_reference_evaluator_cannot_gather_from():
    """It gathers from at most 64 elements along the axis."""
    table, places = ints(*range(70, 0, -1))[None], ints(69, 0, 68)[None]
    nodes = [
        helper.make_node("GatherElements", ["table", "places"], ["found"], axis=1),
        helper.make_node("Add", ["x", "found"], ["y"]),
    ]
    model = model_of(nodes, {"x": ((1, 3), "int64")}, ["y"], {"table": table, "places": places})
    imported = from_onnx(model)
    got = build(imported.mod, num_threads=1)["main"](ints(5, 6, 7)[None], *imported.params.values())
    assert np.asarray(got).tolist() == [[6, 76, 9]]


def test_functions_are_inlined():
    """A function of the model, and those of operators without a row, whose attributes have their defaults."""
    body, versions = [helper.make_node("ThresholdedRelu", ["v"], ["w"])], [helper.make_opsetid("", 18)]
    nodes = [
        helper.make_node("Local", ["image"], ["a"], domain="local"),
        helper.make_node("MeanVarianceNormalization", ["a"], ["b"]),
        helper.make_node("Shrink", ["b"], ["c"], bias=0.2),
    ]
    model = model_of(nodes, {"image": (IMAGE.shape, "float32")}, ["a", "b", "c"], {}, opset=18)
    model.functions.append(helper.make_function("local", "Local", ["v"], ["w"], body, versions))
    model.opset_import.append(helper.make_opsetid("local", 1))
    check(model, {"image": IMAGE})


def test_operators_on_constants_are_evaluated_at_import():
    """Also those whose result's shape depends on elements; the weight of a matmul stays a parameter."""
    nodes = [
        helper.make_node("NonZero", ["mask"], ["places"]),
        helper.make_node("Reshape", ["places", "flat"], ["rows"]),
        helper.make_node("Gather", ["x", "rows"], ["taken"], axis=1),
        helper.make_node("MatMul", ["taken", "w"], ["y"]),
    ]
    weights = {"mask": ints(0, 2, 0, 1), "flat": ints(-1), "w": normal(6, 3)}
    imported = check(model_of(nodes, {"x": (X.shape, "float32")}, ["y"], weights), {"x": X})
    assert list(imported.params) == ["w"]


def test_an_omitted_result_is_not_an_omitted_input():
    """Both have the name "". The reference evaluator confuses them, so its model has a name for the result."""
    weights = {"w": normal(1, 12, 6), "r": normal(1, 12, 3), "high": np.float32(0.05)}

    def model(omitted: str) -> onnx.ModelProto:
        nodes = [
            helper.make_node("LSTM", ["x", "w", "r"], [omitted, "h"], hidden_size=3),
            helper.make_node("Clip", ["h", "", "high"], ["y"]),
        ]
        return model_of(nodes, {"x": (X.shape, "float32")}, ["y"], weights)

    imported = from_onnx(model(""))
    got = build(imported.mod, num_threads=1)["main"](X, *imported.params.values())
    np.testing.assert_allclose(got, ReferenceEvaluator(model("all")).run(None, {"x": X})[0], rtol=1e-5, atol=1e-6)


class Recurrent(torch.nn.Module):
    """An LSTM, a GRU and an RNN of both directions, [T, N, 5] to [T, N, 4]."""

    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(5, 3, num_layers=2, bidirectional=True)
        self.gru = torch.nn.GRU(6, 4, bidirectional=True)
        self.rnn = torch.nn.RNN(8, 2, nonlinearity="relu", bidirectional=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (_, cells) = self.lstm(x)
        y, hidden = self.gru(y)
        return (self.rnn(y)[0], cells, hidden)


def export(model: torch.nn.Module, x: torch.Tensor, axis: int) -> onnx.ModelProto:
    """Export a model by ``torch.onnx`` with a symbolic size on one axis."""
    file = io.BytesIO()
    axes = {"x": {axis: "n"}}
    torch.onnx.export(model, (x,), file, dynamo=False, opset_version=17, input_names=["x"], dynamic_axes=axes)
    return onnx.load_from_string(file.getvalue())


def compare_with_torch(model: torch.nn.Module, exported: onnx.ModelProto, *inputs: torch.Tensor) -> None:
    imported = from_onnx(exported)
    function = build(imported.mod, num_threads=1)["main"]
    for x in inputs:
        with torch.no_grad():
            compare(function(x, *imported.params.values()), outputs(model(x)))


def test_recurrent_layers_exported_by_torch():
    torch.manual_seed(6)
    model, x = Recurrent().eval(), torch.randn(7, 2, 5)
    compare_with_torch(model, export(model, x, axis=1), x, torch.randn(7, 3, 5))


def branches(condition: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """A model that doubles and transposes ``x`` if ``condition`` holds."""
    doubled = [helper.make_node("Mul", ["x", "two"], ["a"]), helper.make_node("Transpose", ["a"], ["b"])]
    two = numpy_helper.from_array(np.float32(2), "two")
    result = helper.make_tensor_value_info("b", TensorProto.FLOAT, None)
    then = helper.make_graph(doubled, "then", [], [result], [two])
    otherwise = helper.make_graph([helper.make_node("Det", ["x"], ["b"])], "else", [], [result])
    taken = helper.make_node("If", ["condition"], ["y"], then_branch=then, else_branch=otherwise)
    nodes = [*condition, taken, helper.make_node("Neg", ["y"], ["z"])]
    return model_of(nodes, {"x": (["n", 6], "float32")}, ["z"], {"six": ints(6)})


def test_the_branch_of_a_known_condition_is_imported():
    size = helper.make_node("Shape", ["x"], ["size"], start=1)
    check(branches([size, helper.make_node("Equal", ["size", "six"], ["condition"])]), {"x": normal(3, 6)})
    peak = helper.make_node("ReduceMax", ["x"], ["peak"])
    unknown = branches([peak, helper.make_node("IsNaN", ["peak"], ["condition"])])
    with pytest.raises(ImportModelError, match="If y: a condition that depends on the inputs' elements"):
        from_onnx(unknown)


def float_values(*names: str) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]


def loop(trips: str, condition: str, stop: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """Multiplies ``total`` by a weight and adds row i of a table in iteration i; ``stop`` computes ``go_on`` of i."""
    counter = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    go = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go", "go_on")]
    row = helper.make_node("Gather", ["table", "i"], ["row"])
    steps = [
        helper.make_node("MatMul", ["total", "w"], ["product"]),
        helper.make_node("Add", ["product", "row"], ["sum"]),
    ]
    result = helper.make_node("Relu", ["sum"], ["positive"])
    body = helper.make_graph(
        [row, *steps, result, *stop],
        "body",
        [counter, go[0], *float_values("total")],
        [go[1], *float_values("sum", "positive")],
    )
    node = helper.make_node("Loop", [trips, condition, "x"], ["last", "all"], body=body)
    weights = {"w": normal(4, 4), "table": normal(9, 4), "five": ints(5)[0], "yes": np.bool_(True), "three": ints(3)[0]}
    return model_of([node], {"x": (["n", 4], "float32"), "m": ([], "int64")}, ["last", "all"], weights)


def test_loops_are_unrolled():
    feeds = {"x": normal(2, 4), "m": np.array(5)}
    below = helper.make_node("Less", ["i", "three"], ["go_on"])
    always = helper.make_node("Identity", ["go"], ["go_on"])
    for trips, condition, stop, steps in (("five", "", always, 5), ("five", "yes", below, 4), ("", "yes", below, 4)):
        imported = from_onnx(loop(trips, condition, [stop]))
        weights = imported.params
        last, every = build(imported.mod, num_threads=1)["main"](*feeds.values(), *weights.values())
        total, wanted = feeds["x"], []
        for row in weights["table"][:steps]:
            total = total @ weights["w"] + row
            wanted.append(np.maximum(total, 0))
        np.testing.assert_allclose(last, total, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(every, np.stack(wanted), rtol=1e-4, atol=1e-4)
    for trips, condition in (("m", ""), ("", "positive_sum")):
        unknown = loop(trips, condition, [below])
        unknown.graph.node.insert(0, helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0))
        unknown.graph.node.insert(1, helper.make_node("Greater", ["s", "zero"], ["positive_sum"]))
        unknown.graph.initializer.append(numpy_helper.from_array(np.float32(0), "zero"))
        with pytest.raises(ImportModelError, match="Loop last: a number of iterations that depends on"):
            from_onnx(unknown)


def test_scans_are_unrolled():
    """A running sum along axis 1, from the last step to the first; the sums are stacked along axis 1 in both orders."""
    add = helper.make_node("Add", ["state", "step"], ["sum"])
    names = [helper.make_node("Identity", ["sum"], [name]) for name in ("up", "down")]
    body = helper.make_graph([add, *names], "body", float_values("state", "step"), float_values("sum", "up", "down"))
    directions = {"scan_input_directions": [1], "scan_output_directions": [0, 1]}
    node = helper.make_node(
        "Scan", ["first", "x"], ["last", "a", "b"], body=body, num_scan_inputs=1, scan_input_axes=[1],
        scan_output_axes=[1, 1], **directions,
    )  # fmt: skip
    model = model_of([node], {"x": (["n", 5, 3], "float32"), "first": (["n", 3], "float32")}, ["last", "a", "b"], {})
    x, first = normal(2, 5, 3), normal(2, 3)
    imported = from_onnx(model)
    last, a, b = build(imported.mod, num_threads=1)["main"](x, first)
    sums = first[:, None] + np.cumsum(x[:, ::-1], axis=1)
    for got, wanted in ((last, sums[:, -1]), (a, sums), (b, sums[:, ::-1])):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_sequence_lengths_of_recurrent_layers(direction: str):
    """As PyTorch's packed sequences."""
    torch.manual_seed(8)
    lengths, x = torch.tensor([5, 2, 4]), torch.randn(5, 3, 6)
    layer = torch.nn.LSTM(6, 4, bidirectional=direction == "bidirectional")
    given = x
    if direction == "reverse":  # PyTorch has no such layer: reverse each sequence
        given = torch.stack([torch.cat([x[:n, i].flip(0), x[n:, i]]) for i, n in enumerate(lengths)], 1)
    packed = torch.nn.utils.rnn.pack_padded_sequence(given, lengths, enforce_sorted=False)
    with torch.no_grad():
        out, (h, c) = layer(packed)
        y = torch.nn.utils.rnn.pad_packed_sequence(out)[0]
    if direction == "reverse":
        y = torch.stack([torch.cat([y[:n, i].flip(0), y[n:, i]]) for i, n in enumerate(lengths)], 1)
    of_onnx = [0, 3, 1, 2]  # gates: input, output, forget, cell instead of input, forget, cell, output
    sides = ["", "_reverse"][: 2 if direction == "bidirectional" else 1]

    def weight(kind: str) -> np.ndarray:
        parts = [getattr(layer, f"{kind}_l0{side}").detach().numpy() for side in sides]
        return np.stack([np.concatenate([np.split(part, 4)[gate] for gate in of_onnx]) for part in parts])

    weights = {"w": weight("weight_ih"), "r": weight("weight_hh")}
    weights["b"] = np.concatenate([weight("bias_ih"), weight("bias_hh")], axis=1)
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b", "lengths"], ["y", "h", "c"], hidden_size=4, direction=direction
    )
    inputs = {"x": ([5, "n", 6], "float32"), "lengths": (["n"], "int32")}
    imported = from_onnx(model_of([node], inputs, ["y", "h", "c"], weights))
    got = build(imported.mod, num_threads=1)["main"](
        x.numpy(), lengths.numpy().astype(np.int32), *imported.params.values()
    )
    np.testing.assert_allclose(np.moveaxis(got[0], 1, 2).reshape(5, 3, -1), y.numpy(), rtol=1e-5, atol=1e-5)
    for state, wanted in zip(got[1:], (h, c), strict=True):
        np.testing.assert_allclose(state, wanted.numpy(), rtol=1e-5, atol=1e-5)


def test_a_vision_transformer_exported_by_torch():
    """The exporter's own shape arithmetic, with a symbolic batch."""
    torch.manual_seed(5)
    model, x = ViTModel(ViTConfig(image_size=12, patch_size=4, **SMALL)).eval(), torch.randn(2, 3, 12, 12)
    compare_with_torch(model, export(model, x, axis=0), x, torch.randn(3, 3, 12, 12))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("Multinomial", ["x"]), ("Det", ["x"]), ("Det", ["x"])], r"imported: Det \(2\), Multinomial \(1\)"),
        ([("NonZero", ["x"])], "NonZero o0: a result whose shape depends on elements"),
        ([("Dropout", ["x", "", "yes"])], "Dropout o0: training_mode: got True; expected False"),
        ([("Reshape", ["x", "s"])], "a shape, axes or number that depends on the inputs' elements"),
        ([("Softmax", ["x"], {"flavour": 2})], "Softmax o0: .*flavour"),
    ],
)
def test_refusals(nodes: Sequence[Any], message: str):
    made = [helper.make_node(op, given, [f"o{i}"], **dict(*attrs)) for i, (op, given, *attrs) in enumerate(nodes)]
    model = model_of(made, {"x": ([2, 2], "float32"), "s": ([2], "int64")}, ["o0"], {"yes": np.bool_(True)})
    with pytest.raises(ImportModelError, match=message):
        from_onnx(model)


def test_other_opsets_are_refused():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ([2], "float32")}, ["y"], {}, opset=9)
    with pytest.raises(ImportModelError, match="expected 13 to 23"):
        from_onnx(model)


def test_inputs_without_a_shape_are_refused():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (None, "float32")}, ["y"], {})
    with pytest.raises(ImportModelError, match="the input x has no shape"):
        from_onnx(model)
