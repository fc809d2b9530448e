"""PackLayouts keeps results, with weights packed by the exported functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlc_compiler.backends.cpu.schedules import CPU_RULES
from mlc_compiler.interp import run_function
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.expr import IntImm, Var
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.annotate_patterns import AnnotatePatterns
from mlc_compiler.passes.apply_schedules import ApplySchedules
from mlc_compiler.passes.fuse_ops import FuseOps
from mlc_compiler.passes.fuse_tensor_functions import FuseTensorFunctions
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.passes.pack_layouts import PackLayouts, pack_function
from mlc_compiler.relax.nodes import Call, Constant, Function, TensorStructInfo, TupleStructInfo
from mlc_compiler.schedules.rule import column_tiles
from mlc_compiler.script import parse
from mlc_compiler.tir.index_map import IndexMap, IndexMapError
from mlc_compiler.verifier import verify
from tests.compiler.schedules.meaning import AVX2, run
from tests.compiler.script.round_trip import check_round_trip

SOURCE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def rows(w: T.Buffer((20, 12), "float32"), var_y: T.handle):
        m = T.int64()
        y = T.match_buffer(var_y, (m, 12), "float32")
        for i, j in T.grid(m, 12):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = w[19 - vi, vj]

    @T.prim_func(private=True)
    def negate(w: T.Buffer((20, 12), "float32")):
        for i, j in T.grid(20, 12):
            with T.block("w"):
                vi, vj = T.axis.remap("SS", [i, j])
                w[vi, vj] = T.float32(0) - w[vi, vj]

    @R.function
    def main(ids: R.Tensor(("n",), "int32"), x: R.Tensor(("n", 12), "float32"), weights: R.Tuple(
            R.Tensor((20, 12), "float32"), R.Tensor((40, 12), "float32"), R.Tensor((12,), "float32"))):
        n = T.int64()
        R.func_attr({"num_input": 2})
        cls = Module
        with R.dataflow():
            table = weights[0]
            BODY
            R.output(NAMES)
        return RESULT
"""


def source(body: str, result: str) -> IRModule:
    """A module whose ``main`` has these statements and returns this value."""
    lines = body.split("; ")
    names = {line[0] for line in lines} & set(result)
    text = SOURCE.replace("BODY", "\n            ".join(lines)).replace("NAMES", ", ".join(sorted(names)))
    return parse(text.replace("RESULT", result))


def scheduled(mod: IRModule) -> IRModule:
    """The input module of PackLayouts."""
    for step in (Legalize(), AnnotatePatterns(), FuseOps(), FuseTensorFunctions(), ApplySchedules(CPU_RULES, AVX2)):
        mod = step.run(mod)
    return mod


def arguments() -> list[Any]:
    rng = np.random.default_rng(0)
    x, table, up, bias = (rng.standard_normal(s, np.float32) for s in ((3, 12), (20, 12), (40, 12), (12,)))
    return [np.array([3, 0, 19], np.int32), x, (table, up, bias)]


def pack_weights(mod: IRModule, weights: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """The weights, packed by the module's exported pack functions."""
    names = mod.attrs.get("packed", {})
    return tuple(run_function(mod, names[str(i)], w) if str(i) in names else w for i, w in enumerate(weights))


def check_same(mod: IRModule, packed: dict[str, str], name: str = "main") -> IRModule:
    """Assert which weights are packed, and that results are unchanged; returns the module."""
    *inputs, weights = arguments()
    expected = run_function(mod, name, *inputs, tuple(np.copy(w) for w in weights))
    after = ApplySchedules(CPU_RULES, AVX2).run(PackLayouts().run(scheduled(mod)))
    verify(after)
    check_round_trip(after)
    assert after.attrs.get("packed", {}) == packed
    got = run_function(after, name, *inputs, pack_weights(after, weights))
    for a, b in zip(flat(got), flat(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return after


def flat(value: Any) -> list[np.ndarray]:
    return [a for item in value for a in flat(item)] if isinstance(value, tuple) else [value]


def test_a_table_that_is_read_by_rows_too() -> None:
    mod = source("r = R.take(table, ids, axis=0); y = R.linear(R.add(x, r), table)", "y")
    check_same(mod, {"0": "pack_0"})


def test_one_weight_of_two_products() -> None:
    body = "a = R.linear(x, table); b = R.nn.silu(R.linear(R.negative(x), table)); c = R.linear(x, weights[1])"
    after = check_same(source(body, "(a, b, c)"), {"0": "pack_0", "1": "pack_1"})
    info = next(p for p in after["main"].params if isinstance(p.struct_info, TupleStructInfo)).struct_info
    shapes = [[s.value for s in f.shape] for f in info.fields if isinstance(f, TensorStructInfo)]
    assert shapes == [[2, 12, 16], [3, 12, 16], [12]]


def test_weights_that_other_functions_read_too() -> None:
    body = "a = R.linear(x, table); b = R.call_tir(cls.rows, (table,), out_sinfo=R.Tensor((5, 12), 'float32'))"
    after = check_same(source(body, "(a, b)"), {"0": "pack_0"})
    assert after["rows_stored0"].attrs["layouts"] == {"0": column_tiles(16)}


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("a = R.linear(x, table); b: R.Tensor((240,), 'float32') = R.reshape(table, R.shape([240]))", "(a, b)"),
        ("a = R.linear(x, table)", "(a, weights[0])"),
        ("a = R.linear(x, table)", "(a, weights)"),
        ("a = R.linear(x, table); b = table; c = R.linear(R.negative(x), b)", "(a, c)"),
        ("a = R.call_tir_inplace(cls.negate, (table,), out_sinfo=R.Tensor((20, 12), 'float32'), "
         "inplace_indices=(0,)); b = R.linear(x, a)", "b"),
    ],
    ids=["viewed", "returned", "returned in the tuple", "under another name", "written"],
)  # fmt: skip
def test_weights_that_are_not_only_read_by_tensor_functions_stay(body: str, result: str) -> None:
    check_same(source(body, result), {})


PLAIN = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 12), "float32"), w: R.Tensor((20, 12), "float32"), v: R.Tensor(("m", 12), "float32")):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            y = R.linear(x, w)
            z = R.linear(R.nn.silu(y), R.const(CONSTANT, "float32"))
            s = R.linear(x, v)
            R.output(z, s)
        return (z, s)
"""


def test_values_that_are_no_weights_are_packed_where_they_are_used() -> None:
    rng = np.random.default_rng(0)
    constant = rng.integers(-4, 4, (5, 20)).astype(np.float32)
    mod = parse(PLAIN.replace("CONSTANT", str(constant.tolist())))
    args = [rng.standard_normal(s, np.float32) for s in ((3, 12), (20, 12), (7, 12))]
    expected = run_function(mod, "main", *args)
    after = ApplySchedules(CPU_RULES, AVX2).run(PackLayouts().run(scheduled(mod)))
    verify(after)
    check_round_trip(after)
    for got, want in zip(run_function(after, "main", *args), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    func = after["main"]
    assert isinstance(func, Function)
    calls = [b.value for b in func.bindings if isinstance(b.value, Call)]
    assert sum("layout_pack" in c.args[0].name for c in calls) == 2
    (packed,) = (f for c in calls for f in c.args[1].fields if isinstance(f, Constant))
    np.testing.assert_array_equal(packed.data, column_tiles(16).pack(constant))


TWO_LAYOUTS = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def first(w: T.Buffer((2, 12, 16), "float32"), y: T.Buffer((20, 12), "float32")):
        T.func_attr({"layouts": {"0": T.index_map(lambda i0, i1: (i0 // 16, i1, i0 % 16))}, "tir.is_scheduled": True})
        for i, j in T.grid(20, 12):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = w[vi // 16, vj, vi % 16]

    @T.prim_func(private=True)
    def second(w: T.Buffer((5, 12, 4), "float32"), y: T.Buffer((20, 12), "float32")):
        T.func_attr({"layouts": {"0": T.index_map(lambda i0, i1: (i0 // 4, i1, i0 % 4))}, "tir.is_scheduled": True})
        for i, j in T.grid(20, 12):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = w[vi // 4, vj, vi % 4]

    @R.function
    def main(weights: R.Tuple(R.Tensor((20, 12), "float32"))):
        R.func_attr({"num_input": 0})
        cls = Module
        with R.dataflow():
            w = weights[0]
            a = R.call_tir(cls.first, (w,), out_sinfo=R.Tensor((20, 12), "float32"))
            b = R.call_tir(cls.second, (w,), out_sinfo=R.Tensor((20, 12), "float32"))
            R.output(a, b)
        return (a, b)
"""


def test_a_weight_read_in_two_layouts_is_packed_for_each() -> None:
    after = PackLayouts().run(parse(TWO_LAYOUTS))
    verify(after)
    assert "packed" not in after.attrs
    w = np.arange(240, dtype=np.float32).reshape(20, 12)
    for result in run_function(after, "main", (w,)):
        np.testing.assert_array_equal(result, w)


def test_fields_that_a_call_takes_itself() -> None:
    text = TWO_LAYOUTS.replace("(w,)", "(weights[0],)").replace("cls.second", "cls.first")
    after = PackLayouts().run(parse(text))
    verify(after)
    assert after.attrs["packed"] == {"0": "pack_0"}
    w = np.arange(240, dtype=np.float32).reshape(20, 12)
    for result in run_function(after, "main", pack_weights(after, (w,))):
        np.testing.assert_array_equal(result, w)


def test_functions_of_different_weights_do_not_share_layouts() -> None:
    one = str(check_round_trip(source("y = R.linear(x, table)", "y")))
    two = one[one.index("    @R.function") :].replace("def main", "def other").replace("(20, 12)", "(30, 12)")
    mod = parse(one + "\n" + two.replace("(n, 20)", "(n, 30)").replace('("n", 20)', '("n", 30)'))
    check_same(mod, {})


def test_inputs_that_are_tuples_are_no_weights() -> None:
    mod = parse(check_round_trip(source("y = R.linear(x, table)", "y")).replace('"num_input": 2', '"num_input": 3'))
    check_same(mod, {})


LAYOUTS = [
    ((20, 12), "lambda n, k: (n // 16, k, n % 16)"),
    ((4, 3), "lambda n, k: (n // 4, k, n % 4)"),
    ((3, 5, 2), "lambda a, n, k: (a, n // 4, k, n % 4)"),
    ((16, 8), "lambda i, j: (i // 8, j // 4, i % 8 * 4 + j % 4)"),
    ((6, 10), "lambda i, j: (j // 8 % 2 * 4 + i % 4, i // 4, j // 16 * 8 + j % 8)"),
    ((5,), "lambda i: (i // 4, i % 4 // 2, i % 2)"),
]


@pytest.mark.parametrize("dtype", ["float32", "uint32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize(("shape", "text"), LAYOUTS)
def test_packing(shape: tuple[int, ...], text: str, dtype: str) -> None:
    """Every element is at its mapped index, padding is zero, and the inverse maps back."""
    layout, sizes = IndexMap.parse(text), tuple(map(IntImm, shape))
    func = pack_function(sizes, dtype, layout)
    source = (np.arange(np.prod(shape)) % 100 + 1).reshape(shape).astype(dt.to_numpy(dtype))
    expected = layout.pack(source)
    (result,) = run(func, [source, np.zeros_like(expected)])
    np.testing.assert_array_equal(result, expected)
    assert result.astype(np.float64).sum() == source.astype(np.float64).sum()
    inverse = layout.inverse(sizes)
    for index in np.ndindex(*shape):
        stored = [i.value for i in layout(tuple(map(IntImm, index)))]
        assert result[tuple(stored)] == source[index]
        assert [i.value for i in inverse(tuple(map(IntImm, stored)))] == list(index)


@pytest.mark.parametrize(
    ("rank", "text"),
    [
        (2, "lambda i, j: (i, j // 2)"),
        (1, "lambda i: (i * 2,)"),
        (2, "lambda i, j: (i + j,)"),
        (1, "lambda i: (i % 4,)"),
    ],
)
def test_maps_without_an_inverse(rank: int, text: str) -> None:
    with pytest.raises(IndexMapError, match="has no inverse"):
        IndexMap.parse(text).stored_shape([IntImm(8)] * rank)


@pytest.mark.parametrize("text", ["i, j", "lambda i: (i.x,)", "lambda i: (k,)", "lambda i: (i / 2,)", "lambda i: ("])
def test_texts_that_are_no_maps(text: str) -> None:
    with pytest.raises(IndexMapError, match="expected lambda"):
        IndexMap.parse(text)


def test_axes_of_constant_size_are_fused() -> None:
    fused = IndexMap.parse("lambda i, j, k: (j, i * 5 + k)")
    shape = (IntImm(2), IntImm(3), IntImm(5))
    assert [s.value for s in fused.stored_shape(shape)] == [3, 10]
    array = np.arange(30).reshape(2, 3, 5)
    np.testing.assert_array_equal(fused.pack(array), array.transpose(1, 0, 2).reshape(3, 10))
    with pytest.raises(IndexMapError, match="has no inverse"):
        fused.stored_shape((IntImm(2), IntImm(3), Var("n")))


def test_maps_are_values() -> None:
    tiles = IndexMap.from_func(lambda n, k: (n // 16, k, n % 16))
    assert tiles == column_tiles(16) == IndexMap.parse(tiles.text) and hash(tiles) == hash(column_tiles(16))
    assert tiles != column_tiles(8)
    assert tiles.compose(tiles.inverse((IntImm(32), IntImm(3)))) == IndexMap.from_func(lambda n, k: (n, k))
