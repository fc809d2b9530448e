"""Group ``call_tir`` for fusion; each group moves to a private graph function marked ``Primitive``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..ir import dtype as dt
from ..ir.expr import IntImm, PrimExpr
from ..ir.module import IRModule
from ..ir.simplify import Analyzer, key
from ..relax import nodes as rx
from ..relax.dataflow import Mutations, TirCall, tir_call, used_vars
from ..relax.primitive import PrimitiveFunctions
from ..tir.nodes import PrimFunc
from .annotate_patterns import BROADCAST, ELEMENTWISE, INJECTIVE_PATTERNS, MATMUL, REDUCTION
from .base import Pass
from .gates import reads_halves

EPILOGUE_PATTERNS = (ELEMENTWISE, BROADCAST)
ANCHOR_PATTERNS = (MATMUL, REDUCTION)


@dataclass(frozen=True)
class Prologues:
    """The row reductions that a back end's matmuls can recompute in each of their tiles.

    rows, nbytes: maximum rows and bytes of a reduction's result. dtypes: allowed dtypes of the result.
    """

    rows: int = 0
    nbytes: int = 0
    dtypes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Gates:
    """The matmuls that a back end can fuse with the operator that combines the two halves of their result.

    dtypes: allowed dtypes of the matmul's result. fits: whether the functions of a group form such a matmul.
    """

    dtypes: frozenset[str] = frozenset()
    fits: Callable[[Sequence[PrimFunc]], bool] = lambda functions: True


NO_PROLOGUES = Prologues()
NO_GATES = Gates()


@dataclass(frozen=True)
class FuseOps(Pass):
    """Group the operator calls of every dataflow block; needs ``op_pattern`` on the tensor functions.

    - An element-wise, broadcast or injective call joins the injective calls that are its only readers.
    - A matmul or reduction absorbs the element-wise and broadcast calls that follow it as an epilogue, each the only
      reader of the one before, as long as the shape stays the same.
    - A call that depends on weights and constants only (dequantize, cast) joins every matmul, reduction or injective
      call that reads it, with one copy in each, so that its result is never materialized.
    - A reduction of few rows that ``prologues`` allows, such as a normalization, joins the matmul that is its only
      reader as a prologue: with few rows, each tile of the matmul can recompute the reduction.
    - A matmul that ``gates`` allows joins the only group that reads it, if that group combines each column of the first
      half of the result with the same column of the second half, as in SwiGLU.

    A group is placed at its last call; a call is not moved across an in-place write of a tensor that it
    reads. Equal groups share one function.
    """

    name = "fuse-ops"
    prologues: Prologues = NO_PROLOGUES
    gates: Gates = NO_GATES

    def run(self, mod: IRModule) -> IRModule:
        made = PrimitiveFunctions(mod)
        changes = {}
        for name, func in mod.of_type(rx.Function).items():
            if "Primitive" not in func.attrs:
                changes[name] = self._fuse_function(func, mod, made)
        return mod.updated({**changes, **made.functions})

    def _fuse_function(self, func: rx.Function, mod: IRModule, made: PrimitiveFunctions) -> rx.Function:
        weights = _weight_vars(func)
        blocks = []
        for block in func.blocks:
            if block.dataflow:
                groups = _Groups(block, mod, weights, self).find()
                block = rx.BindingBlock(made.rewrite(block.bindings, groups), dataflow=True)
            blocks.append(block)
        return replace(func, blocks=tuple(blocks))


def _weight_vars(func: rx.Function) -> set[int]:
    """The ``id`` of each weight: the parameters from ``num_input`` on, and items of tuples among them."""
    known = {id(p) for p in func.params[int(func.attrs.get("num_input", len(func.params))) :]}
    for binding in func.bindings:
        if isinstance(binding.value, rx.TupleGetItem) and all(id(v) in known for v in used_vars(binding.value)):
            known.add(id(binding.var))
    return known


@dataclass
class _Node:
    """A binding of the block; ``call`` and ``pattern`` are None for anything but a ``call_tir`` of known shapes."""

    binding: rx.Binding
    call: TirCall | None
    pattern: str | None
    readers: list[int]
    escapes: bool

    @property
    def shape(self) -> tuple[PrimExpr, ...] | None:
        outputs = self.call.outputs if self.call else ()
        info = outputs[0] if len(outputs) == 1 else None
        return info.shape if isinstance(info, rx.TensorStructInfo) else None


class _Groups:
    """The fusion groups of one dataflow block. A group is identified by the position of its last call."""

    def __init__(self, block: rx.BindingBlock, mod: IRModule, weights: set[int], options: FuseOps):
        self.options = options
        self.functions = mod.of_type(PrimFunc)
        self.nodes = [_node(binding, mod) for binding in block.bindings]
        self.position = {id(b.var): i for i, b in enumerate(block.bindings)}
        self.mutations = Mutations(block.bindings, mod.functions)
        self._connect()
        self.weight_only = self._find_weight_only(weights)
        self.members: dict[int, set[int]] = {i: {i} for i in range(len(self.nodes))}
        self.groups_of: list[set[int]] = [{i} for i in range(len(self.nodes))]
        self.anchored: dict[int, int] = {}

    def _connect(self) -> None:
        """Compute the readers of each node; readers of a tuple item count as readers of the tuple."""
        for i in reversed(range(len(self.nodes))):
            node = self.nodes[i]
            takes_item = isinstance(node.binding.value, rx.TupleGetItem)
            for var in used_vars(node.binding.value):
                source = self.position.get(id(var))
                if source is None:
                    continue
                self.nodes[source].readers += node.readers if takes_item else [i]
                self.nodes[source].escapes |= takes_item and node.escapes

    def _find_weight_only(self, weights: set[int]) -> list[bool]:
        known = set(weights)
        flags = []
        for node in self.nodes:
            value = node.binding.value
            plain = node.pattern in INJECTIVE_PATTERNS or isinstance(value, rx.TupleGetItem | rx.Tuple)
            depends_on_weights_only = plain and all(id(v) in known for v in used_vars(value))
            depends_on_weights_only &= not self.mutations.is_written(node.binding.var)
            if depends_on_weights_only:
                known.add(id(node.binding.var))
            flags.append(depends_on_weights_only)
        return flags

    def find(self) -> dict[int, list[int]]:
        """Map each group's position to the sorted positions of its bindings; bindings fused elsewhere have no entry."""
        for i, node in enumerate(self.nodes):
            if node.pattern in ANCHOR_PATTERNS:
                self._add_epilogue(i)
        for i in reversed(range(len(self.nodes))):
            if self.nodes[i].pattern in INJECTIVE_PATTERNS and i not in self.anchored:
                self._join_readers(i)
        for end in self._anchored_by(MATMUL):
            self._join_gate(end)
        for end in self._anchored_by(REDUCTION):
            self._join_matmul(end)
        return {end: sorted(group) for end, group in self.members.items() if not self._is_item_of_moved(end)}

    def _anchored_by(self, pattern: str) -> list[int]:
        return [end for end in self.members if end in self.anchored and self._anchor(end).pattern == pattern]

    def _anchor(self, i: int) -> _Node:
        return self.nodes[self.anchored[i]]

    def _is_item_of_moved(self, i: int) -> bool:
        value = self.nodes[i].binding.value
        if not isinstance(value, rx.TupleGetItem) or not isinstance(value.tuple_value, rx.Var):
            return False
        source = self.position.get(id(value.tuple_value))
        return source is not None and (source not in self.members or self._is_item_of_moved(source))

    # -- epilogues of a matmul or reduction ----------------------------------------------------------------------

    def _add_epilogue(self, anchor: int) -> None:
        chain = [anchor]
        while (following := self._next_in_epilogue(chain)) is not None:
            chain.append(following)
        end = chain[-1]
        for i in chain:
            del self.members[i]
            self.groups_of[i] = {end}
            self.anchored[i] = anchor
        self.members[end] = set(chain)

    def _next_in_epilogue(self, chain: list[int]) -> int | None:
        last = self.nodes[chain[-1]]
        readers = set(last.readers)
        if last.escapes or len(readers) != 1:
            return None
        (reader,) = readers
        node = self.nodes[reader]
        fits = node.pattern in EPILOGUE_PATTERNS and reader not in self.anchored and _same_shape(last, node)
        return reader if fits and all(self._may_delay(i, reader) for i in chain) else None

    # -- matmuls whose halves are combined ------------------------------------------------------------------------

    def _join_gate(self, end: int) -> None:
        """Move the group of a matmul, which ends with ``end``, into the injective group that combines its halves."""
        matmul, readers = self.nodes[end], set(self.nodes[end].readers)
        if matmul.escapes or len(readers) != 1:
            return
        (reader,) = readers
        (group, *others) = self.groups_of[reader]
        if others or group in self.anchored:
            return
        if not self._reads_halves(reader, end) or not self._is_epilogue_of(reader, group):
            return
        calls = [self.nodes[i].call for i in self.members[end]]
        if not self.options.gates.fits([self.functions[call.callee] for call in calls if call is not None]):
            return
        if all(self._may_delay(member, group) for member in self.members[end]):
            self.anchored[group] = self.anchored[end]
            for member in self.members[end]:
                self.groups_of[member] = self.groups_of[member] - {end} | {group}
            self.members[group] |= self.members.pop(end)

    def _reads_halves(self, reader: int, matmul: int) -> bool:
        call, info = self.nodes[reader].call, self.nodes[matmul].binding.var.struct_info
        gated = isinstance(info, rx.TensorStructInfo) and info.dtype in self.options.gates.dtypes
        if call is None or not gated or self.nodes[reader].pattern not in INJECTIVE_PATTERNS:
            return False
        func, var = self.functions[call.callee], self.nodes[matmul].binding.var
        sources = [buffer for buffer, e in zip(func.buffers, call.inputs, strict=False) if e is var]
        return len(sources) == 1 and reads_halves(func, sources[0])

    def _is_epilogue_of(self, reader: int, group: int) -> bool:
        """Whether a group computes each element only from elements of the reader's results at the same index."""
        others = [self.nodes[i] for i in self.members[group] - {reader} if not self.weight_only[i]]
        parts = self.nodes[reader].call.outputs  # type: ignore[union-attr]  # its tensor function reads halves
        shapes = [part.shape for part in parts if isinstance(part, rx.TensorStructInfo)] + [n.shape for n in others]
        at_own_place = all(n.pattern in EPILOGUE_PATTERNS for n in others)
        return at_own_place and all(_equal_shapes(shape, self.nodes[group].shape) for shape in shapes)

    # -- reductions of few rows before a matmul ------------------------------------------------------------------

    def _join_matmul(self, i: int) -> None:
        """Move the group of a reduction, which ends with ``i``, into the group of the matmul that reads it."""
        node, readers = self.nodes[i], set(self.nodes[i].readers)
        if node.escapes or len(readers) != 1 or not self._is_prologue(self._anchor(i)):
            return
        (reader,) = readers
        (group, *others) = self.groups_of[reader]
        is_matmul = self.nodes[reader].pattern == MATMUL and not others
        if is_matmul and all(self._may_delay(member, group) for member in self.members[i]):
            self.members[group] |= self.members.pop(i)
            self.groups_of[i] = {group}

    def _is_prologue(self, node: _Node) -> bool:
        """Whether a node reduces the last axis, has a result of its input's shape, and is one of ``prologues``."""
        if node.call is None or not node.call.inputs or not node.shape:
            return False
        data, result = node.call.inputs[0].struct_info, node.call.outputs[0]
        assert isinstance(result, rx.TensorStructInfo)
        same = isinstance(data, rx.TensorStructInfo) and [key(s) for s in data.shape or ()] == [
            key(s) for s in node.shape
        ]
        sizes, most = [size.value for size in node.shape if isinstance(size, IntImm)], self.options.prologues
        if not same or len(sizes) < len(node.shape) or result.dtype not in most.dtypes:
            return False
        return prod(sizes[:-1]) <= most.rows and prod(sizes) * dt.nbytes(result.dtype) <= most.nbytes

    # -- fusion into readers -------------------------------------------------------------------------------------

    def _join_readers(self, i: int) -> None:
        node = self.nodes[i]
        targets = [(reader, group) for reader in node.readers for group in self.groups_of[reader]]
        accepted = {group for reader, group in targets if self._accepts(reader, group, i)}
        refused = node.escapes or not targets or any(group not in accepted for _, group in targets)
        alone = refused or (len(accepted) > 1 and not self.weight_only[i])
        if alone and not self.weight_only[i]:
            return
        for group in accepted:
            self.members[group].add(i)
        self.groups_of[i] = accepted | ({i} if alone else set())
        if not alone:
            del self.members[i]

    def _accepts(self, reader: int, group: int, i: int) -> bool:
        """Whether call ``i`` may be computed inside ``group``, in which ``reader`` reads its result."""
        if self.nodes[reader].call is None or not self._may_delay(i, group):
            return False
        anchor = self.anchored.get(reader)
        if anchor is None:
            return self.nodes[reader].pattern in INJECTIVE_PATTERNS
        return self.weight_only[i] or (reader != anchor and _same_shape(self.nodes[i], self.nodes[anchor]))

    def _may_delay(self, i: int, end: int) -> bool:
        return self.mutations.may_delay(self.nodes[i].binding.value, i, end)


def _node(binding: rx.Binding, mod: IRModule) -> _Node:
    call = tir_call(binding.value)
    pattern = mod[call.callee].attrs.get("op_pattern") if call and _has_known_shapes(call) else None
    return _Node(binding, call, pattern, [], not binding.var.dataflow)


def _has_known_shapes(call: TirCall) -> bool:
    infos = [*(e.struct_info for e in call.inputs), *call.outputs]
    return all(isinstance(info, rx.TensorStructInfo) and info.shape is not None for info in infos)


def _same_shape(a: _Node, b: _Node) -> bool:
    return _equal_shapes(a.shape, b.shape)


def _equal_shapes(a: tuple[PrimExpr, ...] | None, b: tuple[PrimExpr, ...] | None) -> bool:
    if a is None or b is None or len(a) != len(b):
        return False
    return all(x is y or Analyzer().prove_equal(x, y) for x, y in zip(a, b, strict=True))
