"""Every instruction's PTX in the simulator, against its semantics in the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mlc_compiler.backends.cuda.instructions.copies import TENSOR_COPY
from mlc_compiler.backends.cuda.instructions.scalar import MAX_ERROR
from mlc_compiler.codegen import llvm_ir as ll
from mlc_compiler.codegen.values import I64, i32
from mlc_compiler.ir import dtype as dt
from mlc_compiler.sim import Memory, TensorMap, encode_tensor_map, parse_ptx, run
from mlc_compiler.tir.intrinsics import TensorIntrin
from tests.compiler.backends.cuda.instructions.kernels import ROWS, Kernel, is_uniform, row_kernel, to_ptx
from tests.compiler.backends.cuda.instructions.semantics import evaluate, random_operand

LANES = 32


def scalars_of(row: TensorIntrin) -> list[dict[str, int]]:
    """Values for the scalar operands of an instruction."""
    if row.scalars == ("m",):
        return [{"m": m} for m in (0, 1, 7, 16, 31)]
    if row.scalars == ("count",):
        word = 4 // dt.nbytes(row.operands[0].dtype)
        return [{"count": n} for n in (0, word, row.operands[0].elements)]
    if row.scalars == ("limit",):
        return [{"limit": 7}]
    return [{}]


def simulate(
    kernel: Kernel,
    arrays: list[np.ndarray],
    *scalars: int,
    threads: int = LANES,
    sm: str = "sm_90",
    described: Callable[[int], TensorMap] | None = None,
) -> np.ndarray:
    """Run a kernel with one block on arrays; returns the first array afterwards.

    described: the tensor map of the second array, given its address, if the kernel takes one.
    """
    program = parse_ptx(to_ptx(kernel.module, sm))
    memory = Memory()
    addresses = [memory.allocate(array) for array in arrays]
    args: list[int | bytes] = list(addresses)
    if described is not None:
        args[1] = encode_tensor_map(described(addresses[1]))
    run(program.kernels["kernel"], (1,), (threads,), [*args, *scalars], memory)
    return memory.view(addresses[0], arrays[0].dtype, arrays[0].shape)


def operands_of_all_lanes(row: TensorIntrin) -> list[np.ndarray]:
    """Random operands; one per lane if a single thread executes the instruction."""
    rng = np.random.default_rng(5)
    arrays = []
    for operand in row.operands:
        count = LANES if row.lanes == 1 and not is_uniform(row, operand) else 1
        many = [random_operand(operand, rng) for _ in range(count)]
        arrays.append(np.stack(many) if count > 1 else many[0])
    return arrays


def expected(row: TensorIntrin, arrays: list[np.ndarray], **scalars: int) -> np.ndarray:
    if row.lanes > 1 or is_uniform(row, row.operands[0]):
        return evaluate(row, *arrays, **scalars)
    return np.stack([evaluate(row, *(a[lane] for a in arrays), **scalars) for lane in range(LANES)])


def computed_alone(row: TensorIntrin) -> bool:
    """Whether a warp can test the instruction without other instructions: no operand is a fragment or an mbarrier."""
    alone = all(o.scope != "warp" and o.name != "bar" for o in row.operands)
    return row.semantics is not None and row.lanes <= LANES and alone


@pytest.mark.parametrize("name", [row.name for row in ROWS.values() if computed_alone(row)])
def test_instruction(name: str) -> None:
    row = ROWS[name]
    kernel = row_kernel(row)
    for scalars in scalars_of(row):
        arrays = operands_of_all_lanes(row)
        if name in MAX_ERROR:
            arrays[1] = np.abs(arrays[1]) + np.float32(0.1)
        want = expected(row, arrays, **scalars)
        got = simulate(kernel, arrays, *scalars.values())
        compare(name, got, want)


def compare(name: str, got: np.ndarray, want: np.ndarray) -> None:
    if name in MAX_ERROR:
        np.testing.assert_allclose(got, want, rtol=2 * MAX_ERROR[name], atol=2.0**-20)
    elif not dt.is_float(str(want.dtype)) or ".mma." not in name:
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))
    else:
        tolerance = 2e-2 if want.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith(TENSOR_COPY)])
@pytest.mark.parametrize(("row", "column", "height"), [(0, 0, 300), (16, 64, 40), (100, 128, 101)])
def test_a_box_of_a_matrix(name: str, row: int, column: int, height: int) -> None:
    """Inside, and beyond the last rows and columns, where the result is 0."""
    width, (rows, columns) = 136, ROWS[name].operands[0].shape
    arrays = operands_of_all_lanes(ROWS[name])
    scalars = {"first_row": row, "first_column": column, "height": height, "width": width}
    want = evaluate(ROWS[name], *arrays, **scalars)
    matrix = arrays[1][: height * width].reshape(height, width)
    assert np.array_equal(want[1, 8:16], np.pad(matrix, ((0, rows), (0, columns)))[row + 1, column : column + 8])
    got = simulate(
        row_kernel(ROWS[name]),
        arrays,
        *scalars.values(),
        described=lambda address: TensorMap(address, 2, (width, height), (2 * width,), (columns, rows), 128),
    )
    np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))


PRODUCTS = [name for name in ROWS if name.startswith("cuda.wmma.mma.")]


@pytest.mark.parametrize("stride", [40, 48])
@pytest.mark.parametrize("name", PRODUCTS)
def test_product_of_tiles_in_shared_memory(name: str, stride: int) -> None:
    """fill, load_a, load_b, mma and store together: tiles with padded rows, the product of two steps."""
    row = ROWS[name]
    a_order, b_order, short, result = name.split(".")[4:8]
    stride = 48 if short in ("s8", "e4m3") else stride
    rng = np.random.default_rng(7)
    a, b = (random_operand(o, rng) for o in row.operands[1:])
    accumulated = dt.to_numpy(row.operands[0].dtype)
    kernel = Kernel(3)
    shared = [kernel.shared(16 * stride * x.itemsize) for x in (a, b)]
    for place, pointer, x in zip(shared, kernel.pointers[1:], (a, b), strict=True):
        kernel.copy_together(place, pointer, 16 * stride * x.itemsize)
    acc, left, right = (kernel.registers(n) for n in (32, 16, 16))
    kernel.run(f"cuda.wmma.fill.{result}", [acc])
    kernel.run(f"cuda.wmma.load_a.{a_order}.{short}.ld{stride}", [left, shared[0]])
    kernel.run(f"cuda.wmma.load_b.{b_order}.{short}.ld{stride}", [right, shared[1]])
    for _ in range(2):
        kernel.run(name, [acc, left, right])
    kernel.run(f"cuda.wmma.store.global.{result}.{result}", [kernel.pointers[0], acc])
    kernel.b.ret_void()
    padded = [np.pad(x, ((0, 0), (0, stride - x.shape[1]))) for x in (a, b)]
    got = simulate(kernel, [np.zeros((16, 16), accumulated), *padded])
    once = evaluate(row, np.zeros((16, 16), accumulated), a, b)
    np.testing.assert_allclose(got, 2 * once, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("target", ["f32", "f16", "bf16"])
def test_a_tile_is_stored_converted(target: str) -> None:
    row = ROWS[f"cuda.wmma.store.shared.{target}.f32"]
    out, _ = (random_operand(o, np.random.default_rng(1)) for o in row.operands)
    a, b = (random_operand(o, np.random.default_rng(2)) for o in ROWS[PRODUCTS[0]].operands[1:])
    kernel = Kernel(3)
    shared = [kernel.shared(16 * 16 * 2) for _ in (a, b)]
    for place, pointer in zip(shared, kernel.pointers[1:], strict=True):
        kernel.copy_together(place, pointer, 512)
    result = kernel.shared(out.nbytes)
    acc, left, right = (kernel.registers(n) for n in (32, 16, 16))
    kernel.run("cuda.wmma.fill.f32", [acc])
    kernel.run("cuda.wmma.load_a.row.f16.ld16", [left, shared[0]])
    kernel.run("cuda.wmma.load_b.col.f16.ld16", [right, shared[1]])
    kernel.run(PRODUCTS[0], [acc, left, right])
    kernel.run(row.name, [result, acc])
    kernel.barrier()
    kernel.copy_together(kernel.pointers[0], result, out.nbytes)
    kernel.b.ret_void()
    want = (a.astype(np.float32) @ b.astype(np.float32).T).astype(out.dtype)
    np.testing.assert_allclose(simulate(kernel, [out, a, b]).astype(float), want.astype(float), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("count", [1, 5])
def test_a_copy_is_awaited_by_groups(count: int) -> None:
    """Two groups in flight, one awaited: its bytes have arrived."""
    kernel = Kernel(2)
    shared = kernel.shared(2 * LANES * 16)
    for group in range(2):
        offset = kernel.b.add(kernel.b.mul(kernel.thread, i32(16)), i32(group * LANES * 16))
        places = [kernel.at(shared, offset), kernel.at(kernel.pointers[1], offset)]
        kernel.run("cuda.cp_async.16.f32", places)
        kernel.run("cuda.cp_async.commit", [])
    kernel.run("cuda.cp_async.wait", [], pending=i32(1))
    kernel.barrier()
    kernel.copy_together(kernel.pointers[0], shared, LANES * 16)
    kernel.run("cuda.cp_async.wait", [], pending=i32(0))
    kernel.b.ret_void()
    source = np.arange(256, dtype=np.float32) * count
    got = simulate(kernel, [np.zeros(128, np.float32), source])
    np.testing.assert_array_equal(got, source[:128])


@pytest.mark.parametrize("columns", [64, 128, 256])
@pytest.mark.parametrize("short", ["f16", "bf16"])
def test_product_of_a_warpgroup(columns: int, short: str) -> None:
    """All four parts of tiles of 64 positions, accumulated."""
    row = ROWS[f"cuda.wgmma.m64n{columns}k16.f32.{short}"]
    acc, a, b = (random_operand(o, np.random.default_rng(4)) for o in row.operands)
    kernel = Kernel(3)
    tiles = [kernel.shared(array.nbytes) for array in (a, b)]
    for place, pointer, array in zip(tiles, kernel.pointers[1:], (a, b), strict=True):
        kernel.copy_together(place, pointer, array.nbytes, 128)
    kernel.run("cuda.fence.proxy_async", [])
    kernel.barrier()
    of_thread = kernel.at(kernel.pointers[0], kernel.b.mul(kernel.thread, i32(2 * columns)))
    registers = kernel.registers(2 * columns)
    kernel.copy(registers, of_thread, 2 * columns, 4)
    kernel.run("cuda.wgmma.fence", [])
    for part in range(4):
        kernel.run(row.name, [registers, *tiles], part=ll.Constant(I64, part))
    kernel.run("cuda.wgmma.commit", [])
    kernel.run(f"cuda.wgmma.wait.n{columns}", [registers], pending=i32(0))
    kernel.copy(of_thread, registers, 2 * columns, 4)
    kernel.b.ret_void()
    got = simulate(kernel, [acc, a, b], threads=128, sm="sm_90a")
    swizzle = np.arange(8)[None, :] ^ (np.arange(256)[:, None] % 8)

    def plain(tile: np.ndarray) -> np.ndarray:
        chunks = tile.astype(np.float32).reshape(len(tile), 8, 8)
        return np.take_along_axis(chunks, swizzle[: len(tile), :, None], axis=1).reshape(len(tile), 64)

    product = plain(a) @ plain(b).T
    lanes, e = np.arange(128)[:, None], np.arange(columns // 2)[None, :]
    rows, across = lanes // 32 * 16 + lanes % 32 // 4 + e // 2 % 2 * 8, e // 4 * 8 + lanes % 4 * 2 + e % 2
    np.testing.assert_allclose(got, acc + product[rows, across], rtol=1e-4, atol=1e-4)
    if columns == 64:
        want = acc
        for part in range(4):
            want = evaluate(row, want, a, b, part=part)
        np.testing.assert_allclose(want, got, rtol=1e-4, atol=1e-4)
