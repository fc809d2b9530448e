"""The Matmul rule: the functions that it matches, and results for every tile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mlc_compiler.ir.expr import ExprLike, PrimExpr
from mlc_compiler.ir.expr import Var as Size
from mlc_compiler.ir.visitor import walk
from mlc_compiler.relax.ops import get_operator
from mlc_compiler.schedules.rule import column_tiles, constant_extent
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PARALLEL, Block, For, PrimFunc
from tests.compiler.code_words import group_words
from tests.compiler.schedules.meaning import AVX2, AVX512, check_meaning

N = Size("n")
linear, silu = get_operator("linear").te, get_operator("nn.silu").te
Epilogue = Callable[[te.Tensor, list[te.Tensor]], te.Tensor]


def product(
    rows: tuple[ExprLike, ...], columns: ExprLike, k: ExprLike, after: Epilogue | None = None, dtype: str = "float32"
) -> PrimFunc:
    """``after(x @ w.T)`` of x [*rows, k] and w [columns, k]."""
    x, w = te.placeholder((*rows, k), "float32", "x"), te.placeholder((columns, k), dtype, "w")
    inputs = [x, w]
    result = linear(x, w)
    if after is not None:
        result = after(result, inputs)
    return te.create_prim_func([*inputs, result])


def bias_and_residual(y: te.Tensor, inputs: list[te.Tensor]) -> te.Tensor:
    bias, residual = te.placeholder(y.shape[-1:], "float32", "bias"), te.placeholder(y.shape, "float32", "residual")
    inputs += [bias, residual]
    return y + bias + residual


def quantized(
    rows: ExprLike | None,
    columns: int,
    k: int,
    bits: int = 4,
    group: int = 32,
    layout: str = "NK",
    after: Epilogue | None = None,
    values: tuple[int, ...] = (),
) -> PrimFunc:
    """A matmul of x [rows, k] (or [k]) with a weight that a prologue dequantizes."""
    groups = -(-k // group)
    words = groups * group_words(bits, group) if group % (32 // bits) else -(-k // (32 // bits))
    shapes = ((columns, words), (columns, groups)) if layout == "NK" else ((words, columns), (groups, columns))
    x = te.placeholder((k,) if rows is None else (rows, k), "float32", "x")
    q, scale = te.placeholder(shapes[0], "uint32", "q"), te.placeholder(shapes[1], "float16", "scale")
    options = {"bits": bits, "group": group, "k": k, "layout": layout, "dtype": "float32", "values": values}
    inputs = [x, q, scale]
    result = linear(x, get_operator("dequantize").te(q, scale, **options))
    if after is not None:
        result = after(result, inputs)
    return te.create_prim_func([*inputs, result])


@pytest.mark.parametrize("to", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("rows", [1, 3, 13])
def test_rows_that_are_known(rows: int, to: object) -> None:
    check_meaning(product((rows,), 20, 20, bias_and_residual), to=to, rule="Matmul")


@pytest.mark.parametrize(("columns", "tiles"), [(256, 16), (512, 16), (816, 17), (1024, 16), (1040, 65)])
@pytest.mark.parametrize("after", [None, bias_and_residual])
def test_a_row_reads_several_streams_of_a_large_weight(columns: int, tiles: int, after: Epilogue | None) -> None:
    """Tiles of 16 columns, with AVX2: up to four at once where 16 iterations are left for the threads."""
    result = check_meaning(product((1,), columns, 24, after, "float16"), to=AVX2, rule="Matmul")
    (concurrent,) = (n for n in walk(result) if isinstance(n, For) and n.kind == PARALLEL)
    assert concurrent.extent == tiles


def test_a_row_reads_one_stream_with_wide_vectors() -> None:
    result = check_meaning(product((1,), 1024, 24, None, "float16"), to=AVX512, rule="Matmul")
    (concurrent,) = (n for n in walk(result) if isinstance(n, For) and n.kind == PARALLEL)
    assert concurrent.extent == 1024 // 32


@pytest.mark.parametrize(("rows", "rule"), [(3, "Fallback"), (13, "Matmul"), (N, "Matmul")])
def test_activations_on_the_right_side(rows: ExprLike, rule: str) -> None:
    """An activation is packed at every call only for many rows."""
    check_meaning(product((rows,), 20, 12).with_attr("activations", (0, 1)), {"n": 5}, rule=rule)
    check_meaning(product((rows,), 20, 12).with_attr("activations", (0,)), {"n": 5}, rule="Matmul")


def right_side(rows: int, columns: int, k: int, heads: int = 0) -> PrimFunc:
    """``x @ w`` of x [rows, k] and w [k, columns], or of that many heads."""
    lead = (heads,) if heads else ()
    x, w = te.placeholder((*lead, rows, k), "float32", "x"), te.placeholder((*lead, k, columns), "float32", "w")
    return te.create_prim_func([x, w, get_operator("matmul").te(x, w)])


@pytest.mark.parametrize(
    ("rows", "columns", "heads", "packed"),
    [(24, 32, 0, True), (24, 32, 2, True), (12, 32, 0, False), (24, 16, 0, False), (24, 40, 0, False)],
)
def test_a_large_right_side_is_copied_into_panels(rows: int, columns: int, heads: int, packed: bool) -> None:
    """With an L2 cache of 768 bytes: larger matrices that enough tiles of rows read, of whole panels."""
    small = Target({**AVX2.export(), "l2-bytes": 768})
    made = check_meaning(right_side(rows, columns, 12, heads), to=small, rule="Matmul")
    copies = [b for n in walk(made.body) if isinstance(n, Block) for b in n.alloc_buffers if b.name == "w_global"]
    assert [list(map(constant_extent, b.shape[-3:])) for b in copies] == ([[2, 12, 16]] if packed else [])


@pytest.mark.parametrize("to", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("rows", [0, 1, 3, 12, 17])
def test_rows_that_a_call_tells(rows: int, to: object) -> None:
    check_meaning(product((N,), 20, 12, bias_and_residual), {"n": rows}, to, rule="Matmul")


@pytest.mark.parametrize(
    ("rows", "columns", "k", "dtype"),
    [((2,), 1003, 20, "float32"), ((1,), 20, 576, "float16"), ((5,), 32, 100, "float32"), ((3,), 1, 7, "bfloat16")]
    + [
        ((1, 1, 4), 20, 1, "float32"),
        ((2, N), 20, 5, "float32"),
        ((2, 3, N, 1), 9, 5, "float32"),
        ((), 20, 16, "float32"),
    ],
)
def test_odd_shapes(rows: tuple[ExprLike, ...], columns: int, k: int, dtype: str) -> None:
    check_meaning(product(rows, columns, k, dtype=dtype), {"n": 5}, rule="Matmul")


@pytest.mark.parametrize("k", [1, 7])
def test_one_column(k: int) -> None:
    check_meaning(product((1, N), 1, k, bias_and_residual), {"n": 5}, rule="Matmul")
    check_meaning(product((1,), 1, k, bias_and_residual))
    check_meaning(quantized(N, 1, k, after=bias_and_residual), {"n": 5}, rule="Matmul")


@pytest.mark.parametrize("layout", ["NK", "KN"])
@pytest.mark.parametrize(("bits", "group", "k"), [(3, 40, 100), (4, 32, 64), (8, 40, 100)])
def test_quantized_weights(bits: int, group: int, k: int, layout: str) -> None:
    check_meaning(quantized(N, 20, k, bits, group, layout, bias_and_residual), {"n": 5}, rule="Matmul")


def test_quantized_weights_of_many_rows() -> None:
    check_meaning(quantized(13, 32, 64), to=AVX512, rule="Matmul")


def test_sizes_of_weights_that_a_call_tells() -> None:
    check_meaning(product((N,), Size("m"), Size("l")), {"n": 5, "m": 21, "l": 6}, rule="Matmul")


def test_operands_in_either_order() -> None:
    x, w, k = te.placeholder((N, 12), name="x"), te.placeholder((20, 12), name="w"), te.reduce_axis(12)
    y = te.compute((N, 20), lambda i, j: te.sum(w[j, k] * x[i, k], axis=k), name="y")
    result = check_meaning(te.create_prim_func([w, x, y]), {"n": 5}, rule="Matmul")
    assert result.attrs["layouts"] == {"0": column_tiles(16)}


def test_a_matrix_times_itself() -> None:
    w = te.placeholder((20, 12), name="w")
    check_meaning(te.create_prim_func([w, linear(w, w)]), rule="Matmul")


EPILOGUES: dict[str, Callable[[te.Tensor], te.Tensor]] = {
    "read twice": lambda y: silu(y) * y,
    "transposed": lambda y: te.compute((20, N), lambda i, j: y[j, i] * 2.0, name="transposed"),
    "repeated": lambda y: te.compute((3, N, 20), lambda b, i, j: y[i, j] * te.f32(b), name="repeated"),
    "sliced": lambda y: te.compute((N, 8), lambda i, j: y[i, j] + 1.0, name="sliced"),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_in_the_tile(name: str) -> None:
    check_meaning(product((N,), 20, 12, lambda y, _: EPILOGUES[name](y)), {"n": 5}, rule="Matmul")


OTHER_EPILOGUES: dict[str, Callable[[te.Tensor], te.Tensor]] = {
    "reversed": lambda y: te.compute((N, 20), lambda i, j: y[i, 19 - j], name="reversed"),
    "halves": lambda y: te.compute((N, 10), lambda i, j: y[i, j] * y[i, j + 10], name="gated"),
    "first of the row": lambda y: te.compute((N, 20), lambda i, j: y[i, j] + y[i, 0], name="shifted"),
    "two places": lambda y: te.compute((20, 20), lambda i, j: y[i, j] + y[j, i], name="symmetric"),
    "last row": lambda y: te.compute((1, 20), lambda i, j: y[N - 1, j], name="last"),
    "diagonal": lambda y: te.compute((20,), lambda i: y[i, i], name="diagonal"),
    "reshaped": lambda y: te.compute((N, 5, 4), lambda i, j, k: y[i, j * 4 + k], name="heads"),
    "softmax": lambda y: get_operator("nn.softmax").te(y, axis=-1),
}


@pytest.mark.parametrize("name", OTHER_EPILOGUES)
def test_epilogues_that_need_more_than_the_tile_go_elsewhere(name: str) -> None:
    func = product((N,), 20, 12, lambda y, _: OTHER_EPILOGUES[name](y))
    assert check_meaning(func, {"n": 20}).attrs["schedule"] != "Matmul"


def test_results_beside_the_product() -> None:
    x, w = te.placeholder((N, 12), name="x"), te.placeholder((20, 12), name="w")
    before, y = silu(x), linear(silu(x), w)
    check_meaning(te.create_prim_func([x, w, linear(x, w), silu(linear(x, w))]), {"n": 5})
    check_meaning(te.create_prim_func([x, w, y, silu(y)]), {"n": 5}, rule="Fallback")
    check_meaning(te.create_prim_func([x, w, before, linear(before, w)]), {"n": 5}, rule="Fallback")


def test_prologues_of_the_activation() -> None:
    table, ids = te.placeholder((11, 12), name="table"), te.placeholder((N,), "int32", "ids")
    w, gain = te.placeholder((20, 12), name="w"), te.placeholder((12,), name="gain")
    taken = get_operator("take").te(table, ids, axis=0)
    check_meaning(te.create_prim_func([table, ids, w, linear(silu(taken), w)]), {"n": 5}, rule="Matmul")
    norm = get_operator("nn.rms_norm").te(taken, gain, axes=(-1,), epsilon=1e-5)
    check_meaning(te.create_prim_func([table, ids, gain, w, linear(norm, w)]), {"n": 5}, rule="Fallback")


Dot = Callable[[te.Tensor, te.Tensor, PrimExpr], Callable[..., PrimExpr]]
OTHER_PRODUCTS: dict[str, tuple[tuple[ExprLike, ...], tuple[ExprLike, ...], tuple[ExprLike, ...], Dot, str]] = {
    "batched": (
        (3, N, 12),
        (3, 20, 12),
        (3, N, 20),
        lambda x, w, k: lambda b, i, j: x[b, i, k] * w[b, j, k],
        "Fallback",
    ),
    "x transposed": ((12, N), (20, 12), (N, 20), lambda x, w, k: lambda i, j: x[k, i] * w[j, k], "Fallback"),
    "k by n": ((N, 12), (12, 20), (N, 20), lambda x, w, k: lambda i, j: x[i, k] * w[k, j], "Matmul"),
    "k by n, one row": ((1, 12), (12, 20), (1, 20), lambda x, w, k: lambda i, j: x[i, k] * w[k, j], "Matmul"),
    "k by n, a vector": ((12,), (12, 20), (20,), lambda x, w, k: lambda j: x[k] * w[k, j], "Matmul"),
    "k by n, batched": (
        (3, N, 12),
        (3, 12, 20),
        (3, N, 20),
        lambda x, w, k: lambda b, i, j: x[b, i, k] * w[b, k, j],
        "Matmul",
    ),
    "k by n, a batch of single rows": (
        (14, 1, 12),
        (14, 12, 20),
        (14, 1, 20),
        lambda x, w, k: lambda b, i, j: x[b, i, k] * w[b, k, j],
        "Matmul",
    ),
    "k by n, a batch of vectors": (
        (3, 12),
        (3, 12, 20),
        (3, 20),
        lambda x, w, k: lambda b, j: x[b, k] * w[b, k, j],
        "Fallback",
    ),
    "k by n, batch shared by heads": (
        (2, 6, N, 12),
        (2, 3, 12, 20),
        (2, 6, N, 20),
        lambda x, w, k: lambda b, h, i, j: x[b, h, i, k] * w[b, h // 2, k, j],
        "Matmul",
    ),
    "result transposed": ((N, 12), (20, 12), (20, N), lambda x, w, k: lambda j, i: x[i, k] * w[j, k], "Matmul"),
    "column inside": ((N, 12), (20, 12), (2, 20, N), lambda x, w, k: lambda b, j, i: x[i, k] * w[j, k], "Matmul"),
}


@pytest.mark.parametrize("name", OTHER_PRODUCTS)
def test_other_products(name: str) -> None:
    """Products of other forms match the rule when rows or columns of their right side are contiguous."""
    x_shape, w_shape, shape, dot, rule = OTHER_PRODUCTS[name]
    x, w, k = te.placeholder(x_shape, name="x"), te.placeholder(w_shape, name="w"), te.reduce_axis(12)
    term = dot(x, w, k)
    y = te.compute(shape, lambda *i: te.sum(term(*i), axis=k), name="y")
    check_meaning(te.create_prim_func([x, w, y]), {"n": 5}, rule=rule)
