"""Calls of tensor functions (with random schedules, or in place), and of other graph functions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.expr import IntImm, PrimExpr
from mlc_compiler.ir.expr import Var as Size
from mlc_compiler.ir.module import GlobalVar
from mlc_compiler.ir.structural import structural_equal
from mlc_compiler.ir.visitor import free_vars, substitute
from mlc_compiler.relax import ops
from mlc_compiler.relax.builder import BlockBuilder, call_tir, call_tir_inplace
from mlc_compiler.relax.info import get_item, tensor_info
from mlc_compiler.relax.nodes import Call, TupleStructInfo, constant
from mlc_compiler.relax.tensor_call import lower_te
from mlc_compiler.tir import nodes as tir
from mlc_compiler.tir import te
from mlc_compiler.tir.schedule import Schedule, ScheduleError
from tests.compiler.fuzz.reductions import sum_error
from tests.compiler.fuzz.values import SYMBOLIC, Builder, Value, action, converted, limited

STEPS = 5
FACTORS = ([None, 2], [None, 4], [3, None], [None, 3, 2])


def _random_step(s: Schedule, random_: random.Random) -> None:
    block = random_.choice(s.get_blocks())
    loops = s.get_loops(block)
    loop = random_.choice(loops) if loops else None
    steps: list[Callable[[], object]] = [
        lambda: s.split(loop, random_.choice(FACTORS)),
        lambda: s.split(loop, random_.choice(FACTORS)),
        lambda: s.fuse(*loops[:2]),
        lambda: s.reorder(*random_.sample(loops, len(loops))),
        lambda: s.parallel(loops[0]),
        lambda: s.vectorize(loops[-1]),
        lambda: s.unroll(loop),
        lambda: s.compute_at(block, random_.choice(s.get_loops(s.get_blocks()[-1]))),
        lambda: s.compute_inline(block),
        lambda: s.cache_write(block, 0, "local"),
        lambda: s.cache_read(block, 0, "local"),
        lambda: s.decompose_reduction(block, loop),
        lambda: s.rfactor(loop, 0),
    ]
    if loops:
        random_.choice(steps)()


def scheduled(func: tir.PrimFunc, seed: int) -> tir.PrimFunc:
    """The function after some random schedule primitives."""
    s, random_ = Schedule(func), random.Random(seed)
    for _ in range(STEPS):
        try:
            _random_step(s, random_)
        except ScheduleError:
            continue
    return s.func


def _row_sums(x: te.Tensor) -> te.Tensor:
    """A tensor function of two blocks that adds the sum of each row to its elements."""
    k = te.reduce_axis(x.shape[-1], "k")
    total = te.compute(x.shape[:-1], lambda *i: te.sum(x[(*i, k)], axis=k), name="total")
    return te.compute(x.shape, lambda *i: x[i] + total[i[:-1]], name="out")


def _doubled(x: te.Tensor) -> te.Tensor:
    twice = te.compute(x.shape, lambda *i: x[i] + x[i], name="twice")
    return te.compute(x.shape, lambda *i: te.max(twice[i], 0), name="out")


@action
def tensor_function(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    if not x.rank or x.dtype not in ("float32", "float64", "int32", "int64", "int8"):
        return None
    count = b.sizes(x)[-1] + 1 if extra % 2 else 2
    definition, builder = (_row_sums if extra % 2 else _doubled), BlockBuilder.current()
    call = lower_te(definition, ("x",), [x.expr], {})
    func = builder.add_func(scheduled(call.func, extra), definition.__name__.strip("_"))
    limit, error = x.limit * count, sum_error(x, count)
    value = Value(x.expr, limit, error)
    if limit > 1e4:
        return None
    return b.checked(builder.emit(call_tir(func, call.inputs, call.out_info, call.scalars)), value.limit, value.error)


@action
def in_place(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    """A new tensor that is read, overwritten in place, and read again."""
    if not x.is_float and not dt.is_signed(x.dtype):
        return None
    new = b.emit(ops.negative, x.expr, limit=x.limit, error=x.error)
    before = b.emit(ops.abs, new.expr, limit=x.limit, error=x.error) if new is not None else None
    if new is None or before is None:
        return None
    func = BlockBuilder.current().add_func(_increment(x), "increment")
    call = call_tir_inplace(func, [new.expr], [0], new.info)
    after = b.checked(BlockBuilder.current().emit(call), x.limit + 1, x.error)
    if after is None or extra % 2:
        return after
    return b.emit(ops.subtract, after.expr, before.expr, limit=2 * x.limit + 1, error=2 * x.error)


def _increment(x: Value) -> tir.PrimFunc:
    """A tensor function that adds one to each element in place."""
    sizes = [s if isinstance(s, IntImm) else Size(f"n{k}") for k, s in enumerate(x.shape)]
    buffer = tir.buffer("a", sizes, x.dtype)
    index = [Size(f"i{k}") for k in range(x.rank)]
    body: tir.Stmt = tir.BufferStore(buffer, buffer[tuple(index)] + te.cast(1, x.dtype), tuple(index))
    for var, size in zip(reversed(index), reversed(buffer.shape)):
        body = tir.For(var, size, body)
    return tir.PrimFunc((buffer,), body, {"tir.is_scheduled": True})


@action
def function_call(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    """A call of an earlier function, with arguments made from existing values."""
    if not b.earlier:
        return None
    callee = b.earlier[extra % len(b.earlier)]
    named = any(v is b.n for value in b.values for v in free_vars(value.info))
    sizes = {callee.n: b.n if named else IntImm(SYMBOLIC[extra % len(SYMBOLIC)])}
    args = [_argument(b, p, [substitute(s, sizes) for s in p.shape], extra + i) for i, p in enumerate(callee.params)]
    infos = [tensor_info([substitute(s, sizes) for s in r.shape], r.dtype) for r in callee.results]
    whole = infos[0] if len(infos) == 1 else TupleStructInfo(tuple(infos))
    call = Call(GlobalVar(callee.name), tuple(a.expr for a in args), struct_info=whole)
    result = BlockBuilder.current().emit(call)
    which = extra // 2 % len(infos)
    chosen = result if len(infos) == 1 else BlockBuilder.current().emit(get_item(result, which))
    return b.checked(chosen, callee.results[which].limit, callee.results[which].error)


def _argument(b: Builder, param: Value, shape: Sequence[PrimExpr], choice: int) -> Value:
    """An existing value of the parameter's type, or a new one with elements of an existing value."""
    known = [v for v in b.values if not v.error and v.limit <= param.limit and v.dtype == param.dtype]
    fitting = [v for v in known if structural_equal(v.info, tensor_info(shape, param.dtype))]
    if fitting:
        return fitting[choice % len(fitting)]
    exact = [v for v in b.values if not v.error]
    return _filled(b, exact[choice % len(exact)], shape, param)


def _filled(b: Builder, x: Value, shape: Sequence[PrimExpr], param: Value) -> Value:
    """A value of the given shape with elements of ``x``, repeated along symbolic axes."""
    limit = int(param.limit)
    small = limited(b, x, limit)
    value = converted(b, small, param.dtype) if small is not None else None
    value = limited(b, value, limit) if value is not None else None
    flat = b.emit(ops.reshape, value.expr, (-1,), limit=limit) if value is not None else None
    known = [s.value if isinstance(s, IntImm) else 1 for s in shape]
    places = constant((np.arange(np.prod(known, dtype=int)) % 11).reshape(known).astype(np.int64))
    assert flat is not None
    taken = ops.take(flat.expr, places, axis=0, mode="clip")
    return Value(BlockBuilder.current().emit(ops.broadcast_to(taken, tuple(shape))), param.limit)
