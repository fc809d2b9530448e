"""Operators: vector and scalar code agree with the interpreter, and sums of floats round in a defined order."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.expr import BinaryOp, Call, Cast, IntImm, Not, Select, const
from mlc_compiler.script import parse
from mlc_compiler.target import Target
from tests.compiler.codegen.native import Kernels, apply, elementwise

INTS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)]
OPERATORS = ["+", "-", "*", "//", "%", "/", "min", "max", "<<", ">>", "&", "|", "^"]
COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]
NARROW = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
LANES = 8

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")


def interpreted(func, out: np.ndarray, *args: np.ndarray) -> np.ndarray:
    blocks = (-1, LANES)
    run_prim_func(func, *(a.reshape(blocks) for a in args), result := out.reshape(blocks))
    return result.ravel()


def integers(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of operands: all in 4 bits, otherwise all pairs of small and extreme numbers, and random pairs."""
    signed, width = dt.is_signed(dtype), dt.bits(dtype)
    low = -(1 << (width - 1)) if signed else 0
    high = low + (1 << width) - 1
    some = range(low, high + 1) if width == 4 else {0, 1, 2, 3, 5, 7, 8, 100, low, low + 1, high, high - 1, high // 3}
    some = sorted({*some, *(-v for v in some if signed and -v <= high)})
    pairs = [(a, b) for a in some for b in some]
    rng = np.random.default_rng(0)
    pairs += [(_random(rng, dtype), _random(rng, dtype)) for _ in range(64)]
    pairs = pairs[: len(pairs) // LANES * LANES]
    to = dt.to_numpy(dtype)
    wide = np.int64 if signed else np.uint64
    return np.array([a for a, _ in pairs], wide).astype(to), np.array([b for _, b in pairs], wide).astype(to)


def _random(rng: np.random.Generator, dtype: str) -> int:
    """A number of any magnitude."""
    width = dt.bits(dtype)
    word = int.from_bytes(rng.bytes(8), "little") & ((1 << width) - 1)
    return (word - (1 << (width - 1)) if dt.is_signed(dtype) else word) >> int(rng.integers(width))


def functions(dtype: str, lanes: int) -> dict:
    def operator(op, result):
        return elementwise(lambda a, b: BinaryOp(op, a, b), (dtype, dtype), result, lanes=lanes)

    return {op: operator(op, dtype) for op in OPERATORS} | {op: operator(op, "bool") for op in COMPARISONS}


WHERE = [(d, "cpu") for d in INTS] + [("int8", "cpu:x86-64-v3"), ("int32", "cpu:generic"), ("uint64", "cpu:generic")]


@pytest.mark.parametrize(("dtype", "on"), WHERE)
def test_integer_operators(dtype, on):
    a, b = integers(dtype)
    kernels = Kernels(functions(dtype, LANES), Target(on))
    for op, func in functions(dtype, LANES).items():
        defined = np.ones(a.size, bool)
        if op in ("//", "%", "/"):
            defined = b.astype(object) != 0
        if op in ("<<", ">>"):
            defined = b.astype(object) >= 0
        x, y = np.where(defined, a, a), np.where(defined, b, np.ones_like(b))
        to = np.dtype(bool) if op in COMPARISONS else a.dtype
        got = apply(kernels[op], np.empty(a.size, to), x, y, lanes=LANES)
        wanted = interpreted(func, np.empty(a.size, to), x, y)
        bad = got.view(f"u{to.itemsize}") != wanted.view(f"u{to.itemsize}")
        assert not bad.any(), f"{x[bad][0]} {op} {y[bad][0]}: {got[bad][0]}, not {wanted[bad][0]}"


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32"])
def test_scalar_code_is_like_vector_code(dtype):
    a, b = integers(dtype)
    vector, scalar = (Kernels(functions(dtype, lanes)) for lanes in (LANES, 1))
    for op in (*OPERATORS, *COMPARISONS):
        to = np.dtype(bool) if op in COMPARISONS else a.dtype
        one, many = (apply(k[op], np.empty(a.size, to), a, b, lanes=n) for k, n in ((scalar, 1), (vector, LANES)))
        assert np.array_equal(one, many), op


def test_division_by_zero_is_zero():
    a = np.array([0, 1, -1, 7, -(1 << 31), (1 << 31) - 1, 5, -5], np.int32)
    kernels = Kernels(functions("int32", LANES))
    for op in ("//", "%", "/"):
        assert not apply(kernels[op], np.ones_like(a), a, np.zeros_like(a), lanes=LANES).any()


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, 60, -1, -2, -4, -7, 0])
def test_division_by_constants(divisor):
    a, _ = integers("int32")
    kernels = Kernels(
        {
            op: elementwise(lambda x, op=op: BinaryOp(op, x, IntImm(divisor, "int32")), ("int32",), "int32")
            for op in ("//", "%")
        }
    )
    x = np.resize(a, 1024)
    quotient, remainder = (apply(kernels[op], np.empty_like(x), x) for op in ("//", "%"))
    if divisor == 0:
        assert not quotient.any() and not remainder.any()
        return
    wide = x.astype(np.int64)
    assert np.array_equal(quotient, (wide // divisor).astype(np.int32))
    assert np.array_equal(remainder, wide % divisor)


def test_functions_of_integers():
    for dtype in ("int8", "int32", "int64", "uint16"):
        a, b = integers(dtype)
        b = np.abs(b.astype(np.int64) % 11).astype(b.dtype)
        funcs = {
            "abs": elementwise(lambda x, y, d=dtype: Call("abs", (x,), d), (dtype, dtype), dtype, lanes=LANES),
            "pow": elementwise(lambda x, y, d=dtype: Call("pow", (x, y), d), (dtype, dtype), dtype, lanes=LANES),
            "popcount": elementwise(
                lambda x, y, d=dtype: Call("popcount", (x,), d), (dtype, dtype), dtype, lanes=LANES
            ),
        }
        kernels = Kernels(funcs)
        for name, func in funcs.items():
            if name == "popcount" and dt.is_signed(dtype) and dtype != "int64":
                continue
            got = apply(kernels[name], np.empty_like(a), a, b, lanes=LANES)
            assert np.array_equal(got, interpreted(func, np.empty_like(a), a, b)), (dtype, name)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("on", ["cpu", "cpu:generic"])
def test_narrow_floats_round_after_every_operation(dtype, on):
    to = dt.to_numpy(dtype)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 1 << dt.bits(dtype), 4096).astype(f"uint{dt.bits(dtype)}").view(to) for _ in range(2))
    funcs = {op: elementwise(lambda x, y, op=op: BinaryOp(op, x, y), (dtype, dtype), dtype) for op in "+-*/"}
    funcs |= {op: elementwise(lambda x, y, op=op: BinaryOp(op, x, y), (dtype, dtype), dtype) for op in ("min", "max")}
    funcs["a * b + a"] = elementwise(lambda x, y: x * y + x, (dtype, dtype), dtype)
    funcs |= {op: elementwise(lambda x, y, op=op: BinaryOp(op, x, y), (dtype, dtype), "bool") for op in COMPARISONS}
    kernels = Kernels(funcs, Target(on))
    for op, func in funcs.items():
        out = np.empty(a.size, bool if op in COMPARISONS else to)
        got = apply(kernels[op], out, a, b)
        with np.errstate(all="ignore"):
            wanted = np.empty_like(out)
            run_prim_func(func, a.reshape(-1, 16), b.reshape(-1, 16), wanted.reshape(-1, 16))
        both_nan = np.isnan(got) & np.isnan(wanted) if op not in COMPARISONS else False
        assert np.all((got == wanted) | both_nan), op


def test_logic_and_selection():
    def f(a, b):
        both = BinaryOp("and", a, Not(b))
        return Select(BinaryOp("or", both, b), Cast("int8", a), const(7, "int8"))

    func = elementwise(f, ("bool", "bool"), "int8", lanes=4)
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    assert apply(Kernels({"f": func})["f"], np.empty(4, np.int8), a, b, lanes=4).tolist() == [7, 0, 1, 1]


PRODUCTS_AND_SUMS = {
    "x * y + z": (lambda x, y, z: x * y + z, lambda x, y, z: x * y + z),
    "z + x * y": (lambda x, y, z: z + x * y, lambda x, y, z: x * y + z),
    "x * y - z": (lambda x, y, z: x * y - z, lambda x, y, z: x * y - z),
    "z - x * y": (lambda x, y, z: z - x * y, lambda x, y, z: z - x * y),
    "x * y + y * z": (lambda x, y, z: x * y + y * z, lambda x, y, z: x * y + np.float32(y * z).astype(np.float64)),
}


@pytest.mark.parametrize("lanes", [1, LANES])
def test_the_first_product_of_a_sum_is_fused(lanes):
    x, y, z = np.random.default_rng(0).standard_normal((3, 1024), np.float32)
    wide = [a.astype(np.float64) for a in (x, y, z)]  # products of float32 are exact in float64
    funcs = {n: elementwise(f, ("float32",) * 3, "float32", lanes=lanes) for n, (f, _) in PRODUCTS_AND_SUMS.items()}
    kernels = Kernels(funcs, Target("cpu:x86-64-v3"))
    for name, (_, exact) in PRODUCTS_AND_SUMS.items():
        got = apply(kernels[name], np.empty_like(x), x, y, z, lanes=lanes)
        assert np.array_equal(got, exact(*wide).astype(np.float32)), name


ROWS_ADDED = """
@T.prim_func
def f(x: T.Buffer((64, 8), "float32"), out: T.Buffer((8,), "float32")):
    total = T.decl_buffer((8,), "float32", scope="local")
    for lane in T.vectorized(8):
        total[lane] = T.float32(0.0)
    for i in range(64):
        for lane in T.vectorized(8):
            total[lane] = total[lane] + x[i, lane]
    for lane in T.vectorized(8):
        out[lane] = total[lane]
"""


@pytest.mark.parametrize("on", ["cpu:x86-64-v2", "cpu:x86-64-v3", "cpu"])
def test_sums_of_vectors_keep_their_order(on):
    x = np.random.default_rng(0).standard_normal((64, 8), np.float32)
    Kernels({"f": parse(ROWS_ADDED)}, Target(on))["f"](x, out := np.empty(8, np.float32))
    assert np.array_equal(out, np.add.accumulate(x)[-1])
