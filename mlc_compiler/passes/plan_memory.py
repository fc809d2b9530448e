"""Convert graph functions to destination-passing style with a static memory plan.

After this pass a graph function takes its inputs, then its outputs. Its bindings are allocations at known offsets,
views, direct calls of tensor functions and barriers, and it returns nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from mlc_errors import MLCError

from ..ir import dtype as dt
from ..ir.expr import IntImm, PrimExpr, product
from ..ir.expr import Var as SizeVar
from ..ir.linear import Key, key
from ..ir.module import GlobalVar, IRModule
from ..ir.simplify import Analyzer
from ..ir.visitor import substitute
from ..planning.calls import CallWriter, Operand, Step, View, base_of
from ..planning.workspace import ALIGNMENT, Storage, lay_out
from ..relax.info import is_void
from ..relax.nodes import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    ExternFunc,
    Function,
    Op,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from ..relax.ops import VIEW_OPERATORS
from ..tir.calling import match_sizes, size_parameters
from ..tir.nodes import ZEROED, Buffer, PrimFunc
from .base import Pass

CALL_RETURNING = "mlc.call_returning"
"""The registered function ``(name, number of results, *args, *places)`` that calls ``name`` and copies its results.

The runtime registers it.
"""


class PlanError(MLCError):
    """A graph function whose memory cannot be planned."""


@dataclass(frozen=True)
class PlanMemory(Pass):
    """Assign every value of a graph function a memory location; results become parameters.

    Needs: operators legalized, tensor functions lowered, scratch buffers lifted. Symbolic sizes are planned with their
    upper bound in the attribute ``tir_var_upper_bound``; offsets that depend on unbounded sizes are computed per call.
    Sets the attributes ``num_outputs``, ``workspace_bytes``, ``written_inputs``, ``result`` and ``size_checks``, and
    ``zeroed_bytes``: bytes of memory for scratch buffers of scope ``ZEROED``, shared by all calls.
    """

    name = "plan-memory"

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({name: _Planner(mod, name).plan(f) for name, f in mod.of_type(Function).items()})


Located: TypeAlias = "Storage | Expr | list[Located]"
"""The location of a value: a storage, a list for the fields of a tuple, or an expression (a number, a shape)."""


SizeCheck: TypeAlias = tuple[str, PrimExpr, PrimExpr]


@dataclass(frozen=True)
class _Needs:
    """Arguments of a call besides its tensors: scratch memory, integers (scalars, then sizes), and checks of sizes."""

    scratch: Sequence[TensorStructInfo]
    integers: Sequence[PrimExpr]
    checks: Sequence[SizeCheck]


@dataclass
class _Planner:
    """The plan of one graph function. where: the location of each variable; steps: the calls in order."""

    mod: IRModule
    name: str
    storages: list[Storage] = field(default_factory=list)
    where: dict[int, Located] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    written: set[int] = field(default_factory=set)
    checks: list[SizeCheck] = field(default_factory=list)
    needs: dict[Key, _Needs] = field(default_factory=dict)
    zeroed_bytes: int = 0
    analyzer: Analyzer = field(default_factory=Analyzer)

    def plan(self, func: Function) -> Function:
        for param in func.params:
            self.where[id(param)] = self._parameter(param, param.struct_info)
        for binding in func.bindings:
            self._binding(binding)
        outputs: list[tuple[Var, Storage]] = []
        result = self._result(self.locate(func.ret), func, outputs)
        bounds = {k: int(v) for k, v in dict(func.attrs.get("tir_var_upper_bound", {})).items()}
        planned = self._emit(func, outputs, lay_out(self.storages, bounds))
        written = tuple(i for i, p in enumerate(func.params) if id(p) in self.written)
        checks = (*func.attrs.get("size_checks", ()), *self.checks)
        zeroed = self.zeroed_bytes or ()
        found = {"written_inputs": written, "result": result, "size_checks": checks, "zeroed_bytes": zeroed}
        return replace(planned, attrs={**planned.attrs, **{k: value for k, value in found.items() if value != ()}})

    # -- reading the function -----------------------------------------------------------------------------------

    def _parameter(self, expr: Expr, info: StructInfo | None) -> Located:
        if isinstance(info, TupleStructInfo):
            return [self._parameter(TupleGetItem(expr, i, f), f) for i, f in enumerate(info.fields)]
        if isinstance(info, TensorStructInfo):
            return Storage("param", info, expr=expr)
        return expr

    def _binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(value, Call):
            self.where[id(binding.var)] = self._call(value)
        else:
            self.where[id(binding.var)] = self.locate(value)

    def locate(self, value: Expr) -> Located:
        """The location of a value. Raises PlanError for an undefined variable or an item of a non-tuple."""
        if isinstance(value, Var):
            if id(value) not in self.where:
                raise PlanError(f"{self.name}: {value.name!r} is used before it is defined")
            return self.where[id(value)]
        if isinstance(value, TupleGetItem):
            fields = self.locate(value.tuple_value)
            if not isinstance(fields, list):
                raise PlanError(f"{self.name}: item {value.index} is taken of what is no tuple")
            return fields[value.index]
        if isinstance(value, Tuple):
            return [self.locate(f) for f in value.fields]
        if isinstance(value, Constant) and isinstance(value.struct_info, TensorStructInfo):
            return Storage("const", value.struct_info, expr=value)
        return value

    def _storages(self, value: Expr) -> list[Storage]:
        """The storages of a tensor, or of the tensors in a tuple."""
        leaves = _leaves(self.locate(value))
        found = [leaf for leaf in leaves if isinstance(leaf, Storage)]
        if len(found) < len(leaves):
            raise PlanError(f"{self.name}: a tensor function is given what is no tensor")
        return found

    def _call(self, call: Call) -> Located:
        target = call.target
        if isinstance(target, Op) and target.name in ("call_tir", "call_tir_inplace"):
            return self._kernel(call)
        if isinstance(target, Op) and target.name == "call_dps_packed":
            return self._packed(call)
        if isinstance(target, Op) and target.name in VIEW_OPERATORS:
            return self._view(call)
        if isinstance(target, ExternFunc):
            return self._procedure(target, call)
        raise PlanError(f"{self.name}: no tensor function computes {target.name!r}")

    def _view(self, call: Call) -> Storage:
        (source,) = self._storages(call.args[0])
        info = call.struct_info
        assert isinstance(info, TensorStructInfo)
        before, after = _elements(source.info), _elements(info)
        if not self.analyzer.prove_equal(before, after):
            self.checks.append(("the result of a reshape", after, before))
        return View(base_of(source), info)

    def _kernel(self, call: Call) -> Located:
        func = self.mod[call.args[0]]
        inputs = self._storages(call.args[1])
        inplace = call.attrs.get("inplace_indices", ())
        infos = _tensors(call.out_info)
        indices = inplace or [-1] * len(infos)
        results = [inputs[i] if i >= 0 else self._fresh(info) for i, info in zip(indices, infos, strict=True)]
        fresh = [r for r, i in zip(results, indices, strict=True) if i < 0]
        self._write(call.args[0].name, [inputs[i] for i in indices if i >= 0])
        needs = self._needs(call, func, [*inputs, *fresh])
        self.checks += needs.checks
        scratch = self._scratch(func, needs.scratch)
        self._step(call.args[0], [*inputs, *fresh, *scratch, *needs.integers])
        return list(results) if isinstance(call.out_info, TupleStructInfo) else results[0]

    def _write(self, callee: str, inplace: Sequence[Storage]) -> None:
        for storage in map(base_of, inplace):
            if storage.kind == "const":
                raise PlanError(f"{self.name}: {callee} writes a constant in place", hint="let it write a copy")
            self.written.add(id(storage.expr))

    def _packed(self, call: Call) -> Located:
        """Plan a ``call_dps_packed`` of a registered function, with inputs, results and scalars as arguments."""
        inputs = _leaves(self.locate(call.args[1]))
        results = [self._fresh(info) for info in _tensors(call.out_info)]
        scalars = call.args[2].values if len(call.args) > 2 else ()
        self._step(call.args[0], [*inputs, *results, *scalars])
        return list(results) if isinstance(call.out_info, TupleStructInfo) else results[0]

    def _procedure(self, target: ExternFunc, call: Call) -> Located:
        """Plan a call of a registered function, whose results are copied to newly allocated tensors.

        Raises PlanError for results other than tensors, and for arguments other than tensors, numbers and strings.
        """
        args = [part for a in call.args for part in _leaves(self.locate(a))]
        for arg in args:
            if not isinstance(arg, Storage | PrimValue | StringImm):
                got = type(arg).__name__
                raise PlanError(f"{self.name}: {target.name!r} is given a {got}; expected tensors, numbers and strings")
        if is_void(call.out_info):
            self._step(target, args)
            return []
        return self._returning(target, args, call.out_info)

    def _returning(self, target: ExternFunc, args: Sequence[Operand], info: StructInfo | None) -> Located:
        """Plan a call through ``CALL_RETURNING``: name, number of results, arguments, locations of the results."""
        if not _is_of_tensors(info):
            hint = "annotate it: sinfo_args=R.Tensor(shape, dtype)"
            raise PlanError(f"{self.name}: {target.name!r} gives an object; only tensors have a place", hint=hint)
        results = [self._fresh(tensor) for tensor in _tensors(info)]
        name, count = StringImm(target.name), PrimValue(IntImm(len(results)))
        self._step(ExternFunc(CALL_RETURNING), [name, count, *args, *results])
        return list(results) if isinstance(info, TupleStructInfo) else results[0]

    def _step(self, func: GlobalVar | ExternFunc, args: Sequence[Operand]) -> None:
        for storage in (base_of(a) for a in args if isinstance(a, Storage)):
            storage.last = max(storage.last, len(self.steps))
        self.steps.append(Step(func, tuple(args)))

    def _fresh(self, info: TensorStructInfo) -> Storage:
        now = len(self.steps)
        storage = Storage("workspace", info, now, now)
        self.storages.append(storage)
        return storage

    def _scratch(self, func: PrimFunc, infos: Sequence[TensorStructInfo]) -> list[Storage]:
        """Allocate storage for the scratch parameters of a tensor function."""
        result, zeroed = [], 0
        for buffer, info in zip(func.buffers[len(func.buffers) - len(infos) :], infos, strict=True):
            if buffer.scope == ZEROED:
                result.append(Storage("zeroed", info, offset=zeroed))
                zeroed += self._constant_bytes(buffer)
            else:
                result.append(self._fresh(info))
        self.zeroed_bytes = max(self.zeroed_bytes, zeroed)
        return result

    def _constant_bytes(self, buffer: Buffer) -> int:
        """The bytes of a buffer, rounded up to ``ALIGNMENT``. Raises PlanError for a symbolic size."""
        count = self.analyzer.simplify(product(buffer.shape))
        if not isinstance(count, IntImm):
            hint = "allocate as many elements as any call needs"
            raise PlanError(f"{self.name}: zeroed scratch buffer {buffer.name!r} has a symbolic size", hint=hint)
        return -(-count.value * dt.nbytes(buffer.dtype) // ALIGNMENT) * ALIGNMENT

    # -- what calls need besides their tensors ------------------------------------------------------------------

    def _needs(self, call: Call, func: PrimFunc, args: Sequence[Storage]) -> _Needs:
        """The additional arguments of a call of ``func``, memoized for calls with equal sizes, as of equal layers."""
        callee, scalars = call.args[0].name, _scalars(call, func)
        shapes = tuple(a.info.shape or () for a in args)
        identity = (callee, key(shapes), key(tuple(scalars.values())))
        if identity not in self.needs:
            self.needs[identity] = self._derived(callee, func, shapes, scalars)
        return self.needs[identity]

    def _derived(
        self,
        callee: str,
        func: PrimFunc,
        shapes: Sequence[tuple[PrimExpr, ...]],
        scalars: dict[SizeVar, PrimExpr],
    ) -> _Needs:
        own = match_sizes(func.buffers, shapes) | scalars
        scratch = [
            TensorStructInfo(tuple(self.analyzer.simplify(substitute(s, own)) for s in buffer.shape), buffer.dtype)
            for buffer in func.buffers[len(shapes) :]
        ]
        shapes = [*shapes, *(info.shape or () for info in scratch)]
        sizes = match_sizes(func.buffers, shapes) | scalars
        for var in size_parameters(func):
            if var not in sizes:
                raise PlanError(f"{self.name}: no argument of {callee!r} tells its size {var.name!r}")
        integers = [*scalars.values(), *(sizes[var] for var in size_parameters(func))]
        return _Needs(scratch, integers, self._size_checks(callee, func, shapes, sizes))

    def _size_checks(
        self,
        callee: str,
        func: PrimFunc,
        shapes: Sequence[tuple[PrimExpr, ...]],
        sizes: Mapping[SizeVar, PrimExpr],
    ) -> list[SizeCheck]:
        """Run-time checks for sizes that a callee assumes to be equal but that cannot be proved equal."""
        checks: list[SizeCheck] = []
        for buffer, shape in zip(func.buffers, shapes, strict=True):
            for axis, (formal, actual) in enumerate(zip(buffer.shape, shape, strict=True)):
                expected = substitute(formal, sizes)
                if expected is not actual and not self.analyzer.prove_equal(expected, actual):
                    checks.append((f"{buffer.name} of {callee} on axis {axis}", actual, expected))
        return checks

    # -- the plan -----------------------------------------------------------------------------------------------

    def _result(self, located: Located, func: Function, outputs: list[tuple[Var, Storage]]) -> Any:
        """Turn results into parameters; returns the attribute ``result``, nested like the result.

        Its leaves: ``{"output": i}``, ``{"input": i}`` for a parameter, ``{"shape": sizes}`` and ``{"value": size}``.
        """
        if isinstance(located, list):
            return tuple(self._result(item, func, outputs) for item in located)
        if isinstance(located, ShapeExpr):
            return {"shape": located.values}
        if isinstance(located, Expr) and isinstance(located.struct_info, PrimStructInfo):
            position = next((i for i, p in enumerate(func.params) if p is located), None)
            return {"input": position} if position is not None else {"value": self._number(located)}
        if not isinstance(located, Storage):
            raise PlanError(f"{self.name}: got {type(located).__name__} as a result; expected tensors, shapes, numbers")
        storage = base_of(located)
        position = next((i for i, p in enumerate(func.params) if p is storage.expr), None)
        if position is not None:
            return {"input": position}
        if storage.kind != "workspace":
            raise PlanError(f"{self.name}: a result has no memory of its own", hint="run CopyResults before")
        out = Var(f"out{len(outputs)}", located.info)
        storage.kind, storage.expr = "output", out
        outputs.append((out, storage))
        return {"output": len(outputs) - 1}

    def _number(self, located: Expr) -> PrimExpr:
        info = located.struct_info
        assert isinstance(info, PrimStructInfo)
        value = located.value if isinstance(located, PrimValue) else info.value
        if value is None or not (isinstance(value, SizeVar) or dt.is_int(info.dtype)):
            hint = "return a parameter, arithmetic on integers, or a tensor without axes"
            raise PlanError(f"{self.name}: got a {info.dtype} computed from numbers as a result", hint=hint)
        return value

    # -- the new function ---------------------------------------------------------------------------------------

    def _emit(self, func: Function, outputs: list[tuple[Var, Storage]], total: int | PrimExpr) -> Function:
        writer = CallWriter()
        for step in self.steps:
            writer.write(step)
        attrs = {**func.attrs, "num_outputs": len(outputs), "workspace_bytes": total}
        params = (*func.params, *(out for out, _ in outputs))
        block = BindingBlock(tuple(writer.bindings))
        return Function(params, (block,), Tuple(()), TupleStructInfo(()), attrs, False)


def _scalars(call: Call, func: PrimFunc) -> dict[SizeVar, PrimExpr]:
    """Map each scalar parameter of a tensor function to the argument of the call."""
    given = call.args[2].values if len(call.args) > 2 and isinstance(call.args[2], ShapeExpr) else ()
    return dict(zip((p for p in func.params if isinstance(p, SizeVar)), given, strict=False))


def _elements(info: TensorStructInfo) -> PrimExpr:
    return product(info.shape or ())


def _leaves(located: Located) -> list[Storage | Expr]:
    if isinstance(located, list):
        return [leaf for item in located for leaf in _leaves(item)]
    return [located]


def _is_of_tensors(info: StructInfo | None) -> bool:
    if isinstance(info, TupleStructInfo):
        return all(map(_is_of_tensors, info.fields))
    return isinstance(info, TensorStructInfo)


def _tensors(info: StructInfo | None) -> list[TensorStructInfo]:
    if isinstance(info, TupleStructInfo):
        return [t for f in info.fields for t in _tensors(f)]
    if isinstance(info, TensorStructInfo):
        return [info]
    raise PlanError(f"memory planning: a call gives {type(info).__name__}; expected tensors")
