"""Cost of compiled functions: bytes of memory traffic and arithmetic operations of every kernel that they call.

Both are derived from the shapes of arguments and the attribute ``operations``. The metadata stores them as numbers, or
as expressions of the function's symbolic sizes in text form (``mlc_runtime.shapes``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import Any

from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.expr import INDEX_DTYPE, IntImm, PrimExpr, const, product
from mlc_compiler.ir.module import GlobalVar, IRModule
from mlc_compiler.ir.recursion import deep_recursion
from mlc_compiler.ir.simplify import simplify
from mlc_compiler.passes.annotate_patterns import INJECTIVE
from mlc_compiler.passes.count_operations import GATHERED, OPERATIONS
from mlc_compiler.relax import nodes as rx
from mlc_compiler.script.printer import script
from mlc_compiler.tir.calling import scalar_parameters
from mlc_compiler.tir.nodes import PrimFunc

_NAME = re.compile(r"[A-Za-z_]\w*")


@deep_recursion
def accounting(mod: IRModule, states: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """The kernels of each graph function, with the number of ``calls`` and, per call, the following.

    weight_bytes: bytes of weight arguments; 0 for table lookups, and of experts as many as can be selected.
    activation_bytes: bytes of other arguments,
    without states. operations: see ``CountOperations``; None if they are not counted. reads_state: whether the kernel
    has state arguments and also results (attention does, an append does not). states: the names of the state arrays
    among the function's parameters.
    """
    kernels = mod.of_type(PrimFunc)
    return {name: _function(f, kernels, states) for name, f in mod.of_type(rx.Function).items()}


def _function(func: rx.Function, kernels: Mapping[str, PrimFunc], states: Collection[str]) -> list[dict[str, Any]]:
    arrays = {id(p) for p in func.params if p.name in states}
    found: dict[str, dict[str, Any]] = {}
    for binding in func.bindings:
        call = binding.value
        if isinstance(call, rx.Call) and isinstance(call.target, GlobalVar):
            name = call.target.name
            if name not in found:
                found[name] = {"kernel": name, "calls": 0, **_call(call, kernels[name], arrays)}
            found[name]["calls"] += 1
    return list(found.values())


def _call(call: rx.Call, kernel: PrimFunc, states: Collection[int]) -> dict[str, Any]:
    tensors = call.args[: len(kernel.buffers) - int(kernel.attrs.get("num_scratch", 0))]
    weights = {str(i): a for i, a in enumerate(tensors) if isinstance(a, rx.TupleGetItem)}
    others = [a for a in tensors if not isinstance(a, rx.TupleGetItem) and id(a) not in states]
    looks_up = kernel.attrs.get("op_pattern") == INJECTIVE
    return {
        "weight_bytes": 0 if looks_up else _weight_bytes(weights, call, kernel),
        "activation_bytes": _text(_bytes(others)),
        "operations": _operations(call, kernel),
        "reads_state": bool(kernel.attrs.get("num_outputs")) and any(id(a) in states for a in tensors),
    }


def _weight_bytes(weights: Mapping[str, rx.Expr], call: rx.Call, kernel: PrimFunc) -> int | str:
    """Bytes of weights, by position; of those in the attribute ``gathered``, the bytes of the selected slices."""
    gathered = kernel.attrs.get(GATHERED, {})
    total = _text(_bytes(a for position, a in weights.items() if position not in gathered))
    slices: dict[tuple[int | str, int], int] = {}
    for position in gathered.keys() & weights.keys():
        _, count = gathered[position]
        part = _text(_bytes([weights[position]]))
        if not isinstance(part, int):
            return _text(_bytes(weights.values()))
        slices[gathered[position]] = slices.get(gathered[position], 0) + part // count
    for (selected, count), size in slices.items():
        if isinstance(total, int) and isinstance(selected, int):
            total += min(selected, count) * size
        else:
            total = f"min({_of_caller(selected, call, kernel)}, {count}) * {size} + {total}"
    return total


def _bytes(args: Iterable[rx.Expr]) -> PrimExpr:
    infos = [a.struct_info for a in args]
    sizes = [
        product(i.shape or ()) * dt.nbytes(i.dtype) for i in infos if isinstance(i, rx.TensorStructInfo) and i.shape
    ]
    return _sum(sizes)


def _operations(call: rx.Call, kernel: PrimFunc) -> int | str | None:
    """The kernel's attribute ``operations``, expressed in the caller's sizes."""
    count = kernel.attrs.get(OPERATIONS)
    return None if count is None else _of_caller(count, call, kernel)


def _of_caller(count: int | str, call: rx.Call, kernel: PrimFunc) -> int | str:
    """A number in a kernel's sizes, expressed in those of its caller."""
    if isinstance(count, int):
        return count
    given = [_text(a.value) for a in call.args if isinstance(a, rx.PrimValue)]
    sizes = dict(zip((v.name for v in scalar_parameters(kernel)), given, strict=True))
    return _NAME.sub(lambda name: _in_product(sizes[name[0]]), count)


def _in_product(size: int | str) -> str:
    return str(size) if isinstance(size, int) or size.isidentifier() else f"({size})"


def _text(size: PrimExpr) -> int | str:
    found = simplify(size)
    return found.value if isinstance(found, IntImm) else script(found)


def _sum(sizes: Iterable[PrimExpr]) -> PrimExpr:
    return simplify(reduce(lambda a, b: a + b, sizes, _number(0)))


def _number(value: int) -> PrimExpr:
    return const(value, INDEX_DTYPE)
