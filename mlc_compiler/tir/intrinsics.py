"""Tensor intrinsics: hardware instructions, with their semantics and an emitter for each back end.

The semantics is a tensor expression over the operands: operand 0 is written, the others are read.
``Schedule.tensorize`` replaces a loop nest with these semantics by the instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import chain
from math import prod
from typing import Any

from mlc_errors import MLCError

from ..ir.expr import Call, IntImm, Var
from ..ir.visitor import walk
from . import te
from .nodes import Buffer, BufferLoad, BufferStore, PrimFunc


@dataclass(frozen=True)
class Operand:
    """A row-major operand in memory.

    per_lane: the first axis indexes the threads that execute the instruction together; each passes the address of its
    own row. Otherwise all of them pass the same address. scope: the memory that it must be in; empty for any.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    per_lane: bool = False
    scope: str = ""

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class TensorIntrin:
    """One instruction; ``register_tensor_intrin`` makes it available to ``Schedule.tensorize``.

    operands: the first is the result, and with ``accumulates`` also an input. semantics: tensor expression of the
    result in the other operands and the ``scalars``, integers that are invariant in the instruction. update: the same
    for the new value of the second operand, if the instruction changes that too. emit: kind of target -> function that
    emits the instruction; ``codegen/instructions.py`` has the types. requires: the target extension. lanes: GPU threads
    that execute it together: 1, a warp of 32, or 128. Without ``semantics`` it changes no values: a barrier, or, with
    ``hint``, something that writes none of its operands: a prefetch.
    """

    name: str
    operands: tuple[Operand, ...]
    semantics: Callable[..., te.Tensor] | None
    emit: Mapping[str, Callable[..., Any]]
    requires: str = ""
    accumulates: bool = False
    scalars: tuple[str, ...] = ()
    lanes: int = 1
    update: Callable[..., te.Tensor] | None = None
    hint: bool = False

    @cached_property
    def function(self) -> PrimFunc:
        """The semantics as a tensor function: inputs, the result, then the scalars. Raises MLCError if it has none."""
        if self.semantics is None:
            raise MLCError(f"tensor intrinsic {self.name!r} changes no values; call it as intrinsic.{self.name}")
        return self._function(self.semantics)

    @cached_property
    def results(self) -> tuple[PrimFunc, ...]:
        """The semantics of each written operand, in order, as a tensor function; see ``function``."""
        return (self.function,) if self.update is None else (self.function, self._function(self.update))

    @property
    def written(self) -> int:
        """The number of written operands, which come first."""
        return 0 if self.hint else 1 if self.update is None else 2

    def _function(self, semantics: Callable[..., te.Tensor]) -> PrimFunc:
        inputs = [te.placeholder(o.shape, o.dtype, o.name) for o in self.operands[1:]]
        scalars = [Var(name) for name in self.scalars]
        return te.create_prim_func([*inputs, semantics(*inputs, *scalars), *scalars])


_registered: dict[str, TensorIntrin] = {}


def register_tensor_intrin(row: TensorIntrin, *, override: bool = False) -> TensorIntrin:
    """Register an intrinsic for ``Schedule.tensorize(loop, row.name)``.

    Raises MLCError for a name that is taken, unless ``override``, and for semantics whose result differs from the first
    operand in dtype or shape.
    """
    if row.name in tensor_intrins() and not override:
        raise MLCError(f"there is a tensor intrinsic {row.name!r} already", hint="pass override=True to replace it")
    if row.semantics is not None:
        _check_result(row)
    _registered[row.name] = row
    return row


def _check_result(row: TensorIntrin) -> None:
    result, operand = row.function.buffers[-1], row.operands[0]
    shape = tuple(size.value if isinstance(size, IntImm) else size for size in result.shape)
    if (result.dtype, shape) != (operand.dtype, operand.shape):
        raise MLCError(
            f"tensor intrinsic {row.name!r}: the semantics gives {result.dtype} {list(shape)}; "
            f"the operand {operand.name!r} is {operand.dtype} {list(operand.shape)}"
        )


def tensor_intrins() -> Mapping[str, TensorIntrin]:
    """All intrinsics by name: those of the back ends and the registered ones."""
    found: dict[str, TensorIntrin] = {}
    for rows in (*_of_backends(), _registered):
        found |= rows
    return found


def find_tensor_intrin(name: str) -> TensorIntrin:
    """Return the intrinsic of that name. Raises MLCError, which lists the known names, when there is none."""
    for rows in chain((_registered,), _of_backends()):
        if name in rows:
            return rows[name]
    raise MLCError(f"no tensor intrinsic {name!r}; there are {', '.join(tensor_intrins())}")


def _of_backends() -> Iterator[Mapping[str, TensorIntrin]]:
    """The intrinsics of each back end by name; back ends are imported on first use since they import this module."""
    return (backend.instruction_table for backend in import_module("mlc_compiler.backends").BACKENDS.values())


def operands_of(call: Call) -> list[tuple[Buffer, bool]]:
    """The buffers that an instruction call accesses, each with whether the call writes it."""
    loads = [a.args[0] for a in call.args if isinstance(a, Call) and a.op == "address_of"]
    name = call.op.removeprefix("intrinsic.")
    written = find_tensor_intrin(name).written if name != call.op else 1
    return [(load.buffer, i < written) for i, load in enumerate(loads) if isinstance(load, BufferLoad)]


def written_buffers(stmt: object) -> set[int]:
    """Identities of the buffers that a statement stores to, by plain stores or by instructions."""
    written: set[int] = set()
    for node in walk(stmt):
        if isinstance(node, BufferStore):
            written.add(id(node.buffer))
        elif isinstance(node, Call) and node.op.startswith("intrinsic."):
            written |= {id(b) for b, writes in operands_of(node) if writes}
    return written
