"""ONNX models against onnx's reference evaluator: every row of the table, symbolic sizes, computed shapes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

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
KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


X, Y, POSITIVE = normal(2, 4, 6), normal(2, 4, 6), np.abs(normal(2, 4, 6)) + np.float32(0.5)
IMAGE, PLACES = normal(2, 4, 7, 9), RNG.integers(-3, 3, (2, 3))
FEEDS = {"x": X, "y": Y, "p": POSITIVE, "image": IMAGE, "i": PLACES, "t": X > 0, "u": Y > 0}

UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish Identity LeakyRelu
    IsNaN LpNormalization Mish Neg Relu Round Sigmoid Sign Sin Sinh Softplus Tan Tanh"""
BINARY = "Add Sub Mul Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min"
REDUCTIONS = "ReduceMax ReduceMin ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceSumSquare"

Case = tuple[str, Sequence[Any], Mapping[str, Any]]
"""An operator; its inputs, names of ``FEEDS`` or arrays; its attributes."""
CASES: list[Case] = [
    *((name, ["x"], {}) for name in UNARY.split()),
    *((name, ["p"], {}) for name in ("Log", "Sqrt", "Reciprocal")),
    *((name, ["x", "y"], {}) for name in BINARY.split()),
    *((name, ["x", ints(1)], {"keepdims": 0}) for name in REDUCTIONS.split()),
    *((name, ["t", "u"], {}) for name in ("And", "Or", "Xor")),
    ("Not", ["t"], {}),
    ("Sum", ["x", "y", "p"], {}),
    ("Pow", ["p", np.float32(1.5)], {}),
    ("Div", ["i", ints(2)], {}),
    ("Gelu", ["x"], {"approximate": "tanh"}),
    ("ReduceSum", ["x", ints(0, 2)], {}),
    ("ReduceSum", ["x"], {"keepdims": 0}),
    ("ReduceLogSum", ["p", ints(1)], {}),
    ("CumSum", ["x", np.int64(1)], {"exclusive": 1, "reverse": 1}),
    ("InstanceNormalization", ["image", normal(4), normal(4)], {}),
    ("LpNormalization", ["p"], {"axis": 1, "p": 1}),
    ("PRelu", ["x", normal(4, 1)], {}),
    ("ArgMax", ["x"], {"axis": 1}),
    ("ArgMin", ["x"], {"axis": -1, "keepdims": 0}),
    ("BatchNormalization", ["image", *normal(3, 4), np.abs(normal(4))], {}),
    ("Cast", ["x"], {"to": TensorProto.INT64}),
    ("Clip", ["x", np.float32(-0.5), np.float32(0.5)], {}),
    ("Concat", ["x", "y"], {"axis": -1}),
    ("Expand", [normal(1, 6), ints(3, 2, 1)], {}),
    ("Flatten", ["image"], {"axis": 2}),
    ("Gather", ["x", "i"], {"axis": 1}),
    ("GatherElements", ["x", RNG.integers(0, 4, (2, 2, 6))], {"axis": 1}),
    ("Gemm", [normal(6, 3), normal(5, 6), normal(5)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [normal(3, 6), normal(6, 5)], {}),
    ("LayerNormalization", ["x", normal(4, 6), normal(4, 6)], {"axis": 1}),
    ("LogSoftmax", ["x"], {"axis": 1}),
    ("Softmax", ["x"], {}),
    ("MatMul", ["x", normal(6, 3)], {}),
    ("Pad", ["x", ints(0, 1, 0, 2, 0, 3), np.float32(1.5)], {}),
    ("Reshape", ["x", ints(0, -1, 3)], {}),
    ("Slice", ["x", ints(1, -3), ints(4, 2**63 - 1), ints(1, 2), ints(2, 1)], {}),
    ("Split", ["x", ints(1, 3)], {"axis": 1}),
    ("Resize", ["image", "", np.float32([1, 1, 1.7, 0.6])], {"mode": "linear"}),
    ("Resize", ["image", "", "", ints(2, 4, 5, 13)], {"mode": "cubic"}),
    ("Resize", ["image", "", "", ints(2, 4, 10, 4)], {"coordinate_transformation_mode": "asymmetric"}),
    (
        "Resize",
        ["image", "", "", ints(2, 4, 10, 4)],
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
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
    ("Conv", ["image", normal(6, 2, 3, 2), normal(6)], {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ("Conv", ["x", normal(3, 4, 3)], {"auto_pad": "SAME_UPPER"}),
    ("ConvTranspose", ["image", normal(4, 3, 3, 2), normal(3)], {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    ("ConvTranspose", ["x", normal(4, 3, 3)], {"strides": [2], "output_padding": [1], "dilations": [2]}),
    ("GlobalAveragePool", ["image"], {}),
    ("GlobalMaxPool", ["image"], {}),
    ("MaxPool", ["image"], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 0}),
]
RESULTS = {"Split": 2, "TopK": 2}


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[Sequence[Any], str]],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray],
    opset: int = 17,
) -> onnx.ModelProto:
    """An ONNX model. inputs: name -> (shape, dtype)."""
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
    return model_of(nodes, {k: (v.shape, str(v.dtype)) for k, v in FEEDS.items()}, outputs, weights, 20), kinds


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
    assert {op for op, _, _ in CASES} == set(ROWS)
    model, kinds = every_case()
    check(model, FEEDS, kinds)


def test_axes_of_reductions_as_an_attribute():
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0)
    check(model_of([node], {"x": (X.shape, "float32")}, ["y"], {}, opset=13), {"x": X})


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


def test_a_vision_transformer_exported_by_torch():
    """The exporter's own shape arithmetic, with a symbolic batch."""
    torch.manual_seed(5)
    model, file = ViTModel(ViTConfig(image_size=12, patch_size=4, **SMALL)).eval(), io.BytesIO()
    x = torch.randn(2, 3, 12, 12)
    axes = {"x": {0: "n"}}
    torch.onnx.export(model, (x,), file, dynamo=False, opset_version=17, input_names=["x"], dynamic_axes=axes)
    imported = from_onnx(onnx.load_from_string(file.getvalue()))
    function = build(imported.mod, num_threads=1)["main"]
    for pixels in (x, torch.randn(3, 3, 12, 12)):
        with torch.no_grad():
            compare(function(pixels, *imported.params.values()), outputs(model(pixels)))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("NonZero", ["x"]), ("Det", ["x"]), ("Det", ["x"])], r"cannot be imported: Det \(2\), NonZero \(1\)"),
        ([("Reshape", ["x", "s"])], "a shape, axes or number that depends on the inputs' elements"),
        ([("Softmax", ["x"], {"flavour": 2})], "Softmax o0: .*flavour"),
    ],
)
def test_refusals(nodes: Sequence[Any], message: str):
    made = [helper.make_node(op, given, [f"o{i}"], **dict(*attrs)) for i, (op, given, *attrs) in enumerate(nodes)]
    model = model_of(made, {"x": ([2, 2], "float32"), "s": ([2], "int64")}, ["o0"], {})
    with pytest.raises(ImportModelError, match=message):
        from_onnx(model)


def test_other_opsets_are_refused():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ([2], "float32")}, ["y"], {}, opset=9)
    with pytest.raises(ImportModelError, match="expected 13 to 20"):
        from_onnx(model)
