"""Interpreter of tensor functions: each is translated to a Python function that runs on flat lists of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..ir import dtype as dt
from ..ir.expr import Call, IntImm, Let, PrimExpr, Var, is_const, logical_and
from ..ir.recursion import deep_recursion
from ..ir.visitor import free_vars
from ..script.lines import Lines
from ..tir.calling import flat_index
from ..tir.intrinsics import find_tensor_intrin, written_buffers
from ..tir.nodes import (
    Allocate,
    Block,
    BlockRealize,
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
    While,
)
from .empty import initialisations
from .errors import InterpreterError, outside, unwritten
from .evaluate import match_shape
from .expressions import ExprTranslator


class StmtTranslator(ExprTranslator):
    """Translates statements to Python source. Loops of all kinds run sequentially."""

    def __init__(self) -> None:
        super().__init__()
        self.out = Lines()
        self.globals |= {"outside": outside, "unwritten": unwritten}

    def function(self, func: PrimFunc, sizes: Sequence[Var]) -> str:
        """The source of ``main``, which takes a flat list per buffer, a value per scalar parameter, then sizes."""
        params = [self.name(p) for p in func.params]
        scalars = {id(p) for p in func.params if isinstance(p, Var)}
        extra = [self.name(v, bounded=True) for v in sizes if id(v) not in scalars]
        args = [f"data_{n}" if isinstance(p, Buffer) else n for p, n in zip(func.params, params)]
        with self.out.block(f"def main({', '.join([*args, *extra])}):"):
            for buffer in func.buffers:
                self._accessors(buffer)
            self.stmt(func.body)
        return str(self.out)

    def stmt(self, s: Stmt) -> None:
        getattr(self, f"_{type(s).__name__}")(s)

    def suite(self, header: str, *stmts: Stmt) -> None:
        with self.out.block(header):
            for s in stmts:
                self.stmt(s)

    def _accessors(self, buffer: Buffer) -> None:
        """Define ``load_X(i, j)`` and ``store_X(value, i, j)``, which check the index against the shape."""
        name = self.names[id(buffer)]
        sizes = [f"size{k}_{name}" for k in range(len(buffer.shape))]
        index = [f"i{k}" for k in range(len(sizes))]
        for size, dim in zip(sizes, buffer.shape):
            self.out.add(f"{size} = {self.value(dim)}")
        inside = " and ".join(f"0 <= {i} < {n}" for i, n in zip(index, sizes)) or "True"
        flat = "0"
        for i, n in zip(index, sizes):
            flat = f"({flat}) * {n} + {i}" if flat != "0" else i
        error = f"outside({buffer.name!r}, [{', '.join(sizes)}], {', '.join(index)})"
        with self.out.block(f"def load_{name}({', '.join(index)}):"):
            with self.out.block(f"if {inside}:"):
                self.out.add(f"value = data_{name}[{flat}]")
                self.out.add("if value is not None: return value")
                self.out.add(f"unwritten({', '.join([repr(buffer.name), *index])})")
            self.out.add(error)
        with self.out.block(f"def store_{name}({', '.join(['value', *index])}):"):
            with self.out.block(f"if {inside}:"):
                self.out.add(f"data_{name}[{flat}] = value")
                self.out.add("return")
            self.out.add(error)

    def _allocate(self, buffer: Buffer) -> None:
        name = self.name(buffer)
        count = " * ".join(f"max(0, {self.value(s)})" for s in buffer.shape) or "1"
        self.out.add(f"data_{name} = [None] * ({count})")
        self._accessors(buffer)

    # -- statements

    def _SeqStmt(self, s: SeqStmt) -> None:
        for item in s.stmts:
            self.stmt(item)

    def _opened(self, e: PrimExpr) -> str:
        """Translate an expression with its outermost lets as statements, whose nesting is not limited."""
        while isinstance(e, Let):
            value = self._opened(e.value)
            self.out.add(f"{self.name(e.var)} = {value}")
            e = e.body
        return self.value(e)

    def _BufferStore(self, s: BufferStore) -> None:
        if id(s.buffer) not in self.names:
            raise InterpreterError(f"buffer {s.buffer.name!r} is written where nothing defines it")
        args = [self._opened(s.value), *map(self.index, s.indices)]
        self.out.add(f"store_{self.names[id(s.buffer)]}({', '.join(args)})")

    def _Evaluate(self, s: Evaluate) -> None:
        if isinstance(s.value, Call) and s.value.op.startswith("intrinsic."):
            self._instruction(s.value)
        else:
            self.out.add(self._opened(s.value))

    def _instruction(self, call: Call) -> None:
        """Translate a hardware instruction to a call of the tensor function that its table row defines."""
        self.globals["run_instruction"] = run_instruction
        operands = []
        for address in call.args:
            if not isinstance(address, Call):
                operands.append(self.value(address))
                continue
            load = address.args[0]
            if not isinstance(load, BufferLoad):
                raise InterpreterError(f"{call.op!r} needs addresses as its operands")
            flat = self.index(flat_index(load.buffer, load.indices))
            operands.append(f"(data_{self.names[id(load.buffer)]}, {flat})")
        self.out.add(f"run_instruction({call.op.removeprefix('intrinsic.')!r}, {', '.join(operands)})")

    def _LetStmt(self, s: LetStmt) -> None:
        value = self._opened(s.value)
        self.out.add(f"{self.name(s.var)} = {value}")
        self.stmt(s.body)

    def _Allocate(self, s: Allocate) -> None:
        self._allocate(s.buffer)
        self.stmt(s.body)

    def _IfThenElse(self, s: IfThenElse) -> None:
        self.suite(f"if {self.value(s.condition)}:", s.then_case)
        if s.else_case is not None:
            self.suite("else:", s.else_case)

    def _While(self, s: While) -> None:
        self.suite(f"while {self.value(s.condition)}:", s.body)

    def _For(self, s: For) -> None:
        extent, name = self.value(s.extent), self.name(s.var, bounded=True)
        self.suite(f"for {name} in range({extent}):", s.body)
        initial = None if isinstance(s.extent, IntImm) and s.extent.value > 0 else initialisations(s.body, {id(s.var)})
        if initial is not None:
            with self.out.block(f"if {extent} <= 0:"):
                self.out.add(f"{name} = 0")
                self.stmt(initial)

    def _BlockRealize(self, s: BlockRealize) -> None:
        if is_const(s.predicate, 1):
            self._block(s.block, s.iter_values)
            return
        with self.out.block(f"if {self.value(s.predicate)}:"):
            self._block(s.block, s.iter_values)

    def _block(self, block: Block, values: Sequence[PrimExpr]) -> None:
        for it, value in zip(block.iter_vars, values, strict=True):
            text = self.value(value)
            self.out.add(f"{self.name(it.var, bounded=True)} = {text}")
        for buffer in block.alloc_buffers:
            self._allocate(buffer)
        if block.init is not None:
            first = [it.var for it in block.iter_vars if it.kind == "R"]
            self.suite(f"if {self.value(logical_and(*(v == IntImm(0, v.dtype) for v in first)))}:", block.init)
        self.stmt(block.body)


@dataclass(frozen=True)
class CompiledPrimFunc:
    """A tensor function translated to Python; ``source`` is its text, ``written`` the ``id`` of its outputs."""

    func: PrimFunc
    source: str
    main: Callable[..., None]
    sizes: tuple[Var, ...]
    written: frozenset[int]

    def __call__(self, *args: Any) -> None:
        """Run on arrays and numbers. Raises InterpreterError for arguments that do not match the parameters."""
        env = match_arguments(self.func, args)
        memory: dict[int, list[Any]] = {}
        values = []
        for param, arg in zip(self.func.params, args):
            values.append(memory.setdefault(id(arg), _to_list(arg)) if isinstance(param, Buffer) else env[id(param)])
        scalars = {id(p) for p in self.func.params if isinstance(p, Var)}
        with np.errstate(all="ignore"):
            self.main(*values, *(env[id(v)] for v in self.sizes if id(v) not in scalars))
        for param, arg in zip(self.func.params, args):
            if id(param) in self.written:
                arg[...] = np.array(memory[id(arg)], arg.dtype).reshape(arg.shape)


@lru_cache(maxsize=512)
def compile_prim_func(func: PrimFunc) -> CompiledPrimFunc:
    """Translate ``func`` to Python (memoized)."""
    sizes = tuple(free_vars([b.shape for b in func.buffers]))
    translator = StmtTranslator()
    source = translator.function(func, sizes)
    namespace = dict(translator.globals)
    exec(compile(source, f"<interpreted {func.attrs.get('global_symbol', 'prim_func')}>", "exec"), namespace)
    written = frozenset(written_buffers(func.body))
    return CompiledPrimFunc(func, source, namespace["main"], sizes, written)


def run_instruction(name: str, *operands: Any) -> None:
    """Run a hardware instruction. Operands are (flat list, offset), the result first, then scalars."""
    row = find_tensor_intrin(name)
    if row.semantics is None:
        return
    places, scalars = operands[: len(row.operands)], operands[len(row.operands) :]
    views = [data[at : at + o.elements] for (data, at), o in zip(places, row.operands, strict=True)]
    result: list[Any] = [None] * row.operands[0].elements
    compile_prim_func(row.function).main(*views[1:], result, *scalars)
    if row.accumulates:
        dtype = dt.to_numpy(row.operands[0].dtype)
        result = (np.array(views[0], dtype) + np.array(result, dtype)).tolist()
    data, at = places[0]
    data[at : at + len(result)] = result


@deep_recursion
def run_prim_func(func: PrimFunc, *args: Any) -> None:
    """Run a tensor function in place.

    args: a numpy array for each buffer parameter (dtype and shape as declared; symbolic sizes are taken from the
    arrays), an int or float for each scalar parameter. Arrays that the function stores to are overwritten. Raises
    InterpreterError for mismatched arguments, accesses outside a buffer, and reads of uninitialized local memory.
    """
    try:
        compile_prim_func(func)(*args)
    except InterpreterError as error:
        name = func.attrs.get("global_symbol")
        raise InterpreterError(error.message, where=[*error.where, *([name] if name else [])]) from error
    except (ZeroDivisionError, ArithmeticError) as error:
        raise InterpreterError(f"integer arithmetic failed: {error}") from error


def match_arguments(func: PrimFunc, args: Sequence[Any]) -> dict[int, int]:
    """Check the arguments; return the values of scalars and symbolic sizes by ``id``."""
    if len(args) != len(func.params):
        raise InterpreterError(f"got {len(args)} arguments; expected {len(func.params)}")
    env: dict[int, Any] = {}
    for param, arg in zip(func.params, args):
        if isinstance(param, Var):
            env[id(param)] = bool(arg) if param.dtype == "bool" else arg
    for param, arg in zip(func.params, args):
        if isinstance(param, Buffer):
            _check_array(param, arg)
            match_shape(param.shape, arg.shape, env, f"argument {param.name!r}")
    return env


def _check_array(buffer: Buffer, array: Any) -> None:
    expected = dt.to_numpy(buffer.dtype)
    if not isinstance(array, np.ndarray) or array.dtype != expected:
        got = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise InterpreterError(f"argument {buffer.name!r}: got {got}; expected an array of {buffer.dtype}")


def _to_list(array: np.ndarray) -> list[Any]:
    """The elements in row-major order, as Python ints and bools, or numpy floats."""
    kind = array.dtype.kind
    if kind in "iub":
        return array.ravel().tolist()
    if array.dtype.name.startswith(("int", "uint")):
        return [int(v) for v in array.ravel()]
    return list(array.ravel())
