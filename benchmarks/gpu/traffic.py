"""Count the launches of a compiled function and the bytes of device memory that each accesses, from its loops.

Along an axis of a buffer, an index expression has at most as many values as its loops have iterations. Different
expressions are added up, to at most the length of the axis. An index that is loaded from memory counts with
the loops of its address. A loop of unknown length (such as the context) covers the whole axis.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, prod

from mlc_compiler.backends.cuda.instructions.copies import TENSOR_COPY
from mlc_compiler.backends.cuda.launches import TENSOR_MAP, LaunchCall
from mlc_compiler.backends.cuda.matmul.prefetch import PREFETCH
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.expr import Call, IntImm, PrimExpr, Var
from mlc_compiler.ir.linear import key
from mlc_compiler.ir.module import GlobalVar, IRModule
from mlc_compiler.ir.recursion import deep_recursion
from mlc_compiler.ir.simplify import simplify
from mlc_compiler.ir.visitor import children, free_vars, substitute, walk
from mlc_compiler.relax import nodes as rx
from mlc_compiler.tir.calling import scalar_parameters
from mlc_compiler.tir.intrinsics import find_tensor_intrin
from mlc_compiler.tir.nodes import (
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)

Values = Mapping[Var, PrimExpr]


@dataclass(frozen=True)
class Launched:
    """A launch of a kernel.

    nbytes: upper bound of the bytes of distinct elements that it reads or writes. prefetches: whether it
    reads memory before the preceding kernel has ended.
    """

    kernel: str
    nbytes: float
    prefetches: bool


@deep_recursion
def launches_of(mod: IRModule, name: str, sizes: Mapping[str, int]) -> list[Launched]:
    """The launches of one call of a graph function of a lowered module, in order.

    sizes: the symbolic sizes of its arguments by name. Raises KeyError for a size that is missing there.
    """
    func = mod.of_type(rx.Function)[name]
    known = {v: IntImm(sizes[v.name]) for v in free_vars(tuple(p.struct_info for p in func.params))}
    found: list[Launched] = []
    for binding in func.bindings:
        call = binding.value
        if isinstance(call, rx.Call) and isinstance(call.target, GlobalVar):
            host = mod.of_type(PrimFunc)[call.target.name]
            scalars = [a.value for a in call.args if isinstance(a, rx.PrimValue)]
            found += _Launches(mod, _bound(host, scalars, known))(host.body)
    return found


def _bound(func: PrimFunc, args: list[PrimExpr], known: Values) -> Values:
    """The values of a function's scalar parameters and sizes."""
    return {p: _value(a, known) for p, a in zip(scalar_parameters(func), args, strict=True)}


def _value(expr: PrimExpr, known: Values) -> PrimExpr:
    return simplify(substitute(expr, known))


@dataclass(frozen=True)
class _Launches:
    """The launches of a host function's statements."""

    mod: IRModule
    known: Values

    def __call__(self, stmt: Stmt | None) -> list[Launched]:
        match stmt:
            case SeqStmt():
                return [launched for part in stmt.stmts for launched in self(part)]
            case IfThenElse():
                condition = _value(stmt.condition, self.known)
                assert isinstance(condition, IntImm), f"the condition {condition} is not known before the launch"
                return self(stmt.then_case if condition.value else stmt.else_case)
            case LetStmt():
                return _Launches(self.mod, {**self.known, stmt.var: _value(stmt.value, self.known)})(stmt.body)
            case For():
                extent = _value(stmt.extent, self.known)
                assert isinstance(extent, IntImm), f"the length {extent} of a loop is not known before the launch"
                steps = ({**self.known, stmt.var: IntImm(i)} for i in range(extent.value))
                return [launched for step in steps for launched in _Launches(self.mod, step)(stmt.body)]
            case Evaluate() if launch := LaunchCall.match(stmt.value):
                return list(self._launch(launch))
        return []

    def _launch(self, launch: LaunchCall) -> Iterator[Launched]:
        if any(isinstance(n, IntImm) and n.value == 0 for n in (_value(size, self.known) for size in launch.grid)):
            return
        kernel = self.mod.of_type(PrimFunc)[launch.kernel]
        scalars = [a for a in launch.args if not (isinstance(a, Call) and a.op in ("address_of", TENSOR_MAP))]
        prefetches = any(isinstance(n, Call) and n.op == PREFETCH for n in walk(kernel.body))
        yield Launched(launch.kernel, touched_bytes(kernel, _bound(kernel, scalars, self.known)), prefetches)


@dataclass
class _Axes:
    """The accessed part of a buffer. axes: for each axis, the number of indices by index expression."""

    axes: list[dict[object, float]]
    elements: float = 0


@dataclass
class _Accesses:
    """The accesses of a kernel to its parameters."""

    kernel: PrimFunc
    known: Values
    loops: dict[int, float] = field(default_factory=dict)
    values: dict[int, PrimExpr] = field(default_factory=dict)
    found: dict[int, _Axes] = field(default_factory=dict)

    def visit(self, node: object) -> None:
        if isinstance(node, For):
            extent = _value(node.extent, self.known)
            self.loops[id(node.var)] = extent.value if isinstance(extent, IntImm) else inf
        elif isinstance(node, LetStmt):
            self.values[id(node.var)] = node.value
        elif isinstance(node, BufferLoad | BufferStore):
            self._access(node, 1)
        elif isinstance(node, Call) and node.op.startswith("intrinsic."):
            self._instruction(node)
        for child in children(node):
            self.visit(child)

    def _instruction(self, call: Call) -> None:
        if call.op.startswith(f"intrinsic.{TENSOR_COPY}."):
            self._whole(call.args[1])
            return
        row = find_tensor_intrin(call.op.removeprefix("intrinsic."))
        if row.semantics is None:  # a prefetch; loads access the same bytes
            return
        for operand, arg in zip(row.operands, call.args, strict=False):
            load = arg.args[0] if isinstance(arg, Call) else None
            if isinstance(load, BufferLoad):
                self._access(load, operand.shape[-1])

    def _whole(self, address: PrimExpr) -> None:
        """Count a whole matrix, which the kernel copies in boxes."""
        assert isinstance(address, Call) and isinstance(address.args[0], BufferLoad)
        buffer = address.args[0].buffer
        self.found[id(buffer)] = _Axes([defaultdict(float, {None: inf}) for _ in buffer.shape], inf)

    def _access(self, access: BufferLoad | BufferStore, width: int) -> None:
        buffer = access.buffer
        if not any(b is buffer for b in self.kernel.buffers):
            return
        entry = self.found.setdefault(id(buffer), _Axes([defaultdict(float) for _ in buffer.shape]))
        for axis, index in enumerate(access.indices):
            times = width if axis == len(access.indices) - 1 else 1
            counts = entry.axes[axis]
            counts[key(index)] = max(counts[key(index)], times * self._iterations(index))
        entry.elements += width * self._iterations(access.indices)

    def _iterations(self, index: object) -> float:
        """The maximum number of values of an index expression."""
        return prod(self._variables(index).values())

    def _variables(self, index: object) -> dict[int, float]:
        used: dict[int, float] = {}
        for node in walk(index):
            if isinstance(node, Var) and id(node) in self.values:
                used |= self._variables(self.values[id(node)])
            elif isinstance(node, Var):
                used[id(node)] = self.loops.get(id(node), 1)
            elif isinstance(node, BufferLoad) and node.buffer.scope != "global":
                used[id(node)] = inf
        return used

    def nbytes(self, buffer: Buffer) -> float:
        entry = self.found.get(id(buffer))
        if entry is None:
            return 0
        sizes = [_value(size, self.known) for size in buffer.shape]
        extents = [size.value if isinstance(size, IntImm) else inf for size in sizes]
        by_axis = prod(min(size, sum(counts.values())) for size, counts in zip(extents, entry.axes, strict=True))
        return min(by_axis, entry.elements) * dt.nbytes(buffer.dtype)


def touched_bytes(kernel: PrimFunc, known: Values) -> float:
    """Upper bound of the bytes that a kernel reads or writes. known: its scalar parameters and sizes."""
    accesses = _Accesses(kernel, known)
    accesses.visit(kernel.body)
    return sum(map(accesses.nbytes, kernel.buffers))
