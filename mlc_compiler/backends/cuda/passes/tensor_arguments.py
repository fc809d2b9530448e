"""The matrices that a kernel copies in boxes, for which its launch passes tensor maps."""

from __future__ import annotations

from collections.abc import Iterator

from ....codegen.arithmetic import CodegenError
from ....ir.expr import Call, is_const
from ....ir.simplify import key
from ....ir.visitor import walk
from ....tir.nodes import BufferLoad, Stmt
from ..instructions.copies import TENSOR_COPY
from ..launches import TensorMapArgument


def tensor_arguments(nest: Stmt, name: str) -> dict[int, TensorMapArgument]:
    """The tensor maps of a kernel, by the identity of the buffer that each describes.

    Raises CodegenError if a matrix is not a whole buffer, if copies of it differ in sizes or boxes, or if the kernel
    also accesses its elements: a parameter is either a map or an address. ``name`` is for errors.
    """
    found: dict[int, TensorMapArgument] = {}
    copies = [n for n in walk(nest) if isinstance(n, Call) and n.op.startswith(f"intrinsic.{TENSOR_COPY}.")]
    for copy in copies:
        matrix = _matrix(copy)
        if not all(is_const(i, 0) for i in matrix.first.indices):
            raise _refused(f"copies boxes of a part of {matrix.first.buffer.name!r}", name)
        known = found.setdefault(id(matrix.first.buffer), matrix)
        if key(known.call) != key(matrix.call):
            raise _refused(f"copies {matrix.first.buffer.name!r} in boxes of different kinds", name)
    sources = {id(copy.args[1].args[0]) for copy in copies if isinstance(copy.args[1], Call)}
    for load in _loads(nest):
        if id(load.buffer) in found and id(load) not in sources:
            raise _refused(f"copies {load.buffer.name!r} in boxes, and accesses its elements", name)
    return found


def _matrix(copy: Call) -> TensorMapArgument:
    _, address, _, _, _, height, width = copy.args
    assert isinstance(address, Call) and isinstance(address.args[0], BufferLoad)
    rows = int(copy.op.split(".")[-2])
    return TensorMapArgument(address.args[0], height, width, rows)


def _loads(nest: Stmt) -> Iterator[BufferLoad]:
    return (n for n in walk(nest) if isinstance(n, BufferLoad))


def _refused(what: str, name: str) -> CodegenError:
    return CodegenError(
        f"a kernel {what}",
        where=[f"function {name}"],
        hint="copy whole buffers by boxes of one size only, or by cp.async",
    )
