"""Destination passing with a memory plan: results get their place in the workspace before anything runs.

After this pass a graph function takes its inputs and then its outputs, its bindings are allocations at known offsets,
views, direct calls of tensor functions and barriers, and it returns nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlc_errors import MLCError

from ..ir import dtype as dt
from ..ir.expr import IntImm, PrimExpr, const
from ..ir.module import GlobalVar, IRModule
from ..ir.simplify import Analyzer
from ..ir.visitor import free_vars, substitute
from ..relax.nodes import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    Op,
    PrimValue,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from ..tir.calling import match_sizes, size_parameters
from ..tir.nodes import PrimFunc
from .base import Pass
from .legalize import VIEW_OPERATORS

ALIGNMENT = 64


class PlanError(MLCError):
    """A graph function that cannot be planned."""


@dataclass(eq=False)
class Storage:
    """Memory that one value occupies: a parameter, a constant, an output or a range of the workspace."""

    kind: str
    info: TensorStructInfo
    first: int = 0
    last: int = 0
    offset: int = 0
    expr: Expr | None = None


@dataclass(frozen=True)
class PlanMemory(Pass):
    """Static memory planning; see the module's docstring.

    Needs: operators legalized, tensor functions lowered (their scratch is known). Symbolic sizes need an upper bound in
    the function's ``tir_var_upper_bound``; ``default_bound`` serves those that have none.
    """

    name = "plan-memory"
    default_bound: int | None = None

    def run(self, mod: IRModule) -> IRModule:
        planned = {name: _Planner(mod, self.default_bound).plan(name, f) for name, f in mod.of_type(Function).items()}
        return mod.updated(planned)


@dataclass
class _Step:
    """A call of a tensor function with the storages that it reads and writes."""

    func: GlobalVar
    args: list[Any]
    reads: list[Storage]
    writes: list[Storage]


@dataclass
class _Planner:
    mod: IRModule
    default_bound: int | None
    storages: list[Storage] = field(default_factory=list)
    where: dict[int, Any] = field(default_factory=dict)
    steps: list[_Step] = field(default_factory=list)
    prologue: list[Binding] = field(default_factory=list)
    views: list[tuple[int, Var, Var, TensorStructInfo]] = field(default_factory=list)

    def plan(self, name: str, func: Function) -> Function:
        self.bounds = {k: int(v) for k, v in dict(func.attrs.get("tir_var_upper_bound", {})).items()}
        for param in func.params:
            self.where[id(param)] = self._parameter(param, param.struct_info)
        for binding in func.bindings:
            self._binding(binding)
        outputs = self._outputs(func)
        total = self._assign_offsets()
        return self._emit(func, outputs, total)

    # -- reading the function -----------------------------------------------------------------------------------

    def _parameter(self, expr: Expr, info: StructInfo | None) -> Any:
        if isinstance(info, TupleStructInfo):
            return [self._parameter(TupleGetItem(expr, i, f), f) for i, f in enumerate(info.fields)]
        if isinstance(info, TensorStructInfo):
            return Storage("param", info, expr=expr)
        return expr

    def _binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(value, Call):
            self.where[id(binding.var)] = self._call(binding.var, value)
        else:
            self.where[id(binding.var)] = self.locate(value)

    def locate(self, value: Expr) -> Any:
        """The storage (or list of storages) of a value."""
        if isinstance(value, Var):
            if id(value) not in self.where:
                raise PlanError(f"memory planning: {value.name!r} is used before it is defined")
            return self.where[id(value)]
        if isinstance(value, TupleGetItem):
            return self.locate(value.tuple_value)[value.index]
        if isinstance(value, Tuple):
            return [self.locate(f) for f in value.fields]
        if isinstance(value, Constant) and isinstance(value.struct_info, TensorStructInfo):
            return Storage("const", value.struct_info, expr=value)
        return value

    def _call(self, var: Var, call: Call) -> Any:
        target = call.target
        if isinstance(target, Op) and target.name in ("call_tir", "call_tir_inplace"):
            return self._kernel(var, call)
        if isinstance(target, Op) and target.name in VIEW_OPERATORS:
            return self._view(call)
        what = target.name
        raise PlanError(f"memory planning: no tensor function for {what!r}", hint="run Legalize before PlanMemory")

    def _view(self, call: Call) -> Storage:
        source = self.locate(call.args[0])
        info = call.struct_info
        assert isinstance(info, TensorStructInfo)
        return _View(source.base if isinstance(source, _View) else source, info)

    def _kernel(self, var: Var, call: Call) -> Any:
        func = self.mod[call.args[0]]
        inputs = _flatten(self.locate(call.args[1]))
        inplace = call.attrs.get("inplace_indices", ())
        infos = _tensors(call.out_info)
        indices = inplace or [-1] * len(infos)
        results = [inputs[i] if i >= 0 else self._fresh(info) for i, info in zip(indices, infos, strict=True)]
        fresh = [r for r, i in zip(results, indices, strict=True) if i < 0]
        scratch = self._scratch(func, [*inputs, *fresh])
        buffers = [*inputs, *fresh, *scratch]
        step = _Step(call.args[0], [*buffers, *self._integers(call, func, buffers)], [], [])
        step.reads = [_base(s) for s in inputs]
        step.writes = [_base(s) for s in (*results, *scratch)]
        self._touch((*step.reads, *step.writes))
        self.steps.append(step)
        return results if isinstance(call.out_info, TupleStructInfo) else results[0]

    def _fresh(self, info: TensorStructInfo) -> Storage:
        now = len(self.steps)
        storage = Storage("workspace", info, now, now)
        self.storages.append(storage)
        return storage

    def _scratch(self, func: PrimFunc, args: Sequence[Any]) -> list[Storage]:
        """Storage for the scratch parameters of a tensor function, in the caller's sizes."""
        count = int(func.attrs.get("num_scratch", 0))
        if not count:
            return []
        buffers = func.buffers
        sizes = match_sizes(buffers, [a.info.shape for a in args])
        result = []
        for buffer in buffers[len(args) :]:
            shape = tuple(Analyzer().simplify(substitute(s, sizes)) for s in buffer.shape)
            result.append(self._fresh(TensorStructInfo(shape, buffer.dtype)))
        return result

    def _integers(self, call: Call, func: PrimFunc, buffers: Sequence[Storage]) -> list[PrimExpr]:
        """Values for the scalar parameters and the symbolic sizes of a tensor function."""
        given = list(call.args[2].values) if len(call.args) > 2 and isinstance(call.args[2], ShapeExpr) else []
        sizes = match_sizes(func.buffers, [b.info.shape or () for b in buffers])
        for var in size_parameters(func):
            if var not in sizes:
                raise PlanError(f"memory planning: no argument of {call.args[0].name!r} tells its size {var.name!r}")
            given.append(sizes[var])
        return given

    def _touch(self, storages: Iterable[Storage]) -> None:
        for s in storages:
            s.last = max(s.last, len(self.steps))

    # -- the plan -----------------------------------------------------------------------------------------------

    def _outputs(self, func: Function) -> list[tuple[Var, Storage]]:
        """The results become parameters; what already is a parameter (an in-place result) is not returned again."""
        outputs: list[tuple[Var, Storage]] = []
        for located in _flatten(self.locate(func.ret)):
            storage = _base(located)
            if storage.kind != "workspace":
                if storage.kind == "param":
                    continue
                raise PlanError("memory planning: a constant as the result of a function is not supported")
            if any(s is storage for _, s in outputs):
                raise PlanError("memory planning: a value is returned twice")
            out = Var(f"out{len(outputs)}", located.info)
            storage.kind, storage.expr = "output", out
            outputs.append((out, storage))
        return outputs

    def bound(self, expr: PrimExpr) -> int:
        """The greatest value of a size, from the bounds of its variables."""
        mapping = {}
        for var in free_vars(expr):
            if var.name not in self.bounds and self.default_bound is None:
                raise PlanError(
                    f"memory planning: the size {var.name!r} has no upper bound",
                    hint='give the function an attribute "tir_var_upper_bound": {"' + var.name + '": …}',
                )
            mapping[var] = const(self.bounds.get(var.name, self.default_bound or 0), var.dtype)
        value = Analyzer().simplify(substitute(expr, mapping))
        assert isinstance(value, IntImm)
        return value.value

    def _bytes(self, info: TensorStructInfo) -> int:
        count = 1
        for size in info.shape or ():
            count *= self.bound(size)
        return -(-count * dt.nbytes(info.dtype) // ALIGNMENT) * ALIGNMENT

    def _assign_offsets(self) -> int:
        """First fit: each value, in order of its first use, at the lowest place that is free while it lives."""
        placed: list[tuple[Storage, int]] = []
        total = 0
        for storage in self.storages:
            if storage.kind != "workspace":
                continue
            size = self._bytes(storage.info)
            alive = sorted(
                (other.offset, other.offset + other_size) for other, other_size in placed if other.last >= storage.first
            )
            offset = 0
            for begin, end in alive:
                if offset + size <= begin:
                    break
                offset = max(offset, end)
            storage.offset = offset
            placed = [(o, s) for o, s in placed if o.last >= storage.first]
            placed.append((storage, size))
            total = max(total, offset + size)
        return total

    # -- the new function ---------------------------------------------------------------------------------------

    def _emit(self, func: Function, outputs: list[tuple[Var, Storage]], total: int) -> Function:
        bindings: list[Binding] = []
        names: dict[int, Expr] = {}
        for step in self.steps:
            args = [self._argument(a, bindings, names) for a in step.args]
            bindings.append(Binding(Var("_", None), Call(step.func, tuple(args))))
        attrs = {
            **func.attrs,
            "num_outputs": len(outputs),
            "workspace_bytes": total,
        }
        params = (*func.params, *(out for out, _ in outputs))
        return Function(params, (BindingBlock(tuple(bindings)),), Tuple(()), TupleStructInfo(()), attrs, False)

    def _argument(self, arg: Any, bindings: list[Binding], names: dict[int, Expr]) -> Any:
        if isinstance(arg, PrimExpr):
            return PrimValue(arg)
        storage = _base(arg)
        if id(storage) not in names:
            names[id(storage)] = storage.expr or self._allocation(storage, bindings)
        return names[id(storage)]

    def _allocation(self, storage: Storage, bindings: list[Binding]) -> Var:
        info = storage.info
        var = Var(f"ws{len(bindings)}", info)
        shape = ShapeExpr(info.shape or ())
        attrs = {"dtype": info.dtype, "offset": storage.offset, "nbytes": self._bytes(info)}
        call = Call(Op("builtin.alloc_tensor"), (shape,), attrs, None, info)
        bindings.append(Binding(var, call))
        return var


class _View(Storage):
    """Another shape of a storage."""

    def __init__(self, base: Storage, info: TensorStructInfo):
        super().__init__("view", info)
        self.base = base


def _base(storage: Storage) -> Storage:
    return storage.base if isinstance(storage, _View) else storage


def _flatten(located: Any) -> list[Storage]:
    if isinstance(located, list):
        return [s for item in located for s in _flatten(item)]
    return [located]


def _tensors(info: StructInfo | None) -> list[TensorStructInfo]:
    if isinstance(info, TupleStructInfo):
        return [t for f in info.fields for t in _tensors(f)]
    if isinstance(info, TensorStructInfo):
        return [info]
    raise PlanError(f"memory planning: a call gives {type(info).__name__}; expected tensors")
