"""Static cost estimates of functions scheduled for a CPU, which prune and rank candidates.

Costs are counted per block from the loops around it, without running or lowering anything. Regions that
overlap, as in a convolution, count once per offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import ceil, log2, prod
from typing import Any

from ..backends.cpu.machine import Cpu
from ..ir import dtype as dt
from ..ir.expr import BinaryOp, Call, PrimExpr, Var
from ..ir.simplify import Analyzer
from ..ir.visitor import children, free_vars, walk
from ..target import Target, available_cores
from ..tir.nodes import PARALLEL, UNROLLED, VECTORIZED, BlockRealize, BufferLoad, BufferStore, For, PrimFunc
from .sizes import value_of

L2_BYTES_PER_CYCLE, MEMORY_BYTES_PER_CYCLE = 32.0, 4.0
CALL_CYCLES = 8.0  # cost of a function such as exp on one vector
CYCLES_PER_SECOND = 3e9  # converts estimated cycles, which rank tasks before they are measured


@dataclass(frozen=True)
class Account:
    """Estimated work of a function's busiest thread, summed over its blocks.

    operations, loads, stores: vector instructions; gathers: elements loaded individually. l1_misses, l2_misses: bytes.
    spills: accesses of accumulators that exceed the registers. unrolled: vector operations in unrolled bodies.
    imbalance: ratio of the busiest thread's work to the average. parallel: iterations of parallel loops; iterations: of
    all loops.
    """

    operations: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    gathers: float = 0.0
    spills: float = 0.0
    l1_misses: float = 0.0
    l2_misses: float = 0.0
    unrolled: float = 0.0
    imbalance: float = 0.0
    parallel: float = 0.0
    iterations: float = 0.0

    @property
    def cycles(self) -> float:
        """Estimated cycles of a call: the maximum of instructions, at two per cycle, and cache traffic."""
        instructions = (self.operations + self.loads + self.stores + self.gathers + 2 * self.spills) / 2
        return max(instructions, self.l1_misses / L2_BYTES_PER_CYCLE, self.l2_misses / MEMORY_BYTES_PER_CYCLE)

    @property
    def seconds(self) -> float:
        """Estimated seconds of a call."""
        return self.cycles / CYCLES_PER_SECOND

    @property
    def problem(self) -> str:
        """Why the function cannot run; always empty."""
        return ""

    @property
    def features(self) -> list[float]:
        """log2 of one plus each total and the estimated cycles."""
        return [log2(1.0 + getattr(self, f.name)) for f in fields(self)] + [log2(1.0 + self.cycles)]


def account(func: PrimFunc, target: Target, sizes: Mapping[str, int]) -> Account:
    """Estimate the cost of a scheduled function on a CPU, for the given values of symbolic sizes."""
    cpu, cores = Cpu.of(target), int(str(target.attrs.get("num-cores", available_cores())))
    parts = [_of_nest(nest, cpu, cores) for nest in _nests(func, sizes)]
    return Account(**{f.name: sum(getattr(part, f.name) for part in parts) for f in fields(Account)})


# -- blocks and the loops around them -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Access:
    """A load or store: bytes per element, the loops on which its indices depend, and those of the last index."""

    bytes: int
    loops: frozenset[int]
    last: frozenset[int]
    local: bool
    store: bool


@dataclass(frozen=True)
class _Nest:
    """A block: kinds and extents of the loops around it, outermost first; accesses; numbers of operations and calls."""

    kinds: tuple[str, ...]
    extents: tuple[int, ...]
    accesses: tuple[_Access, ...]
    operations: int
    calls: int


def _nests(func: PrimFunc, sizes: Mapping[str, int]) -> Iterator[_Nest]:
    analyzer = Analyzer()

    def visit(node: Any, loops: tuple[For, ...], uses: Mapping[int, frozenset[int]]) -> Iterator[_Nest]:
        if isinstance(node, For):
            loops, uses = (*loops, node), {**uses, id(node.var): frozenset({len(loops)})}
        elif isinstance(node, BlockRealize) and node.block.name != "root":
            bound = zip(node.block.iter_vars, node.iter_values, strict=True)
            inside = {**uses, **{id(it.var): _used(value, uses) for it, value in bound}}
            if not any(isinstance(n, BlockRealize) for n in walk(node.block.body)):
                yield _nest(node, loops, inside, sizes, analyzer)
                return
            uses = inside
        for child in children(node):
            yield from visit(child, loops, uses)

    return visit(func.body, (), {})


def _used(expr: PrimExpr | Sequence[PrimExpr], uses: Mapping[int, frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*(uses.get(id(v), frozenset()) for v in free_vars(expr) if isinstance(v, Var)))


def _nest(
    node: BlockRealize,
    loops: tuple[For, ...],
    uses: Mapping[int, frozenset[int]],
    sizes: Mapping[str, int],
    a: Analyzer,
) -> _Nest:
    inner = [n for n in walk(node.block.body) if isinstance(n, For)]
    uses = {**uses, **{id(n.var): frozenset({len(loops) + i}) for i, n in enumerate(inner)}}
    every = [*loops, *inner]
    found = [n for n in walk(node.block.body) if isinstance(n, BufferLoad | BufferStore)]
    return _Nest(
        tuple(n.kind for n in every),
        tuple(max(1, value_of(n.extent, sizes, a)) for n in every),
        tuple(_access(n, uses) for n in found),
        sum(isinstance(n, BinaryOp) and dt.is_float(n.dtype) for n in walk(node.block.body)),
        sum(isinstance(n, Call) for n in walk(node.block.body)),
    )


def _access(node: BufferLoad | BufferStore, uses: Mapping[int, frozenset[int]]) -> _Access:
    size = max(1, dt.bits(node.buffer.dtype) // 8)
    last = _used(node.indices[-1:], uses)
    return _Access(size, _used(node.indices, uses), last, node.buffer.scope == "local", isinstance(node, BufferStore))


# -- costs --------------------------------------------------------------------------------------------------------


def _of_nest(nest: _Nest, cpu: Cpu, cores: int) -> Account:
    extents, count = nest.extents, len(nest.extents)
    iterations = float(prod(extents))
    parallel = prod(e for e, kind in zip(extents, nest.kinds, strict=True) if kind == PARALLEL)
    lane = next((i for i, kind in enumerate(nest.kinds) if kind == VECTORIZED), None)
    lanes = 1 if lane is None else min(extents[lane], cpu.lanes(32))
    threads = min(parallel, cores)
    imbalance = ceil(parallel / cores) * threads / parallel
    share = imbalance / threads
    vectors = iterations / lanes * share
    unrolled = prod(e for e, kind in zip(extents, nest.kinds, strict=True) if kind == UNROLLED)
    body = unrolled * (1 if lane is None else ceil(extents[lane] / cpu.lanes(32)))
    loads = stores = gathers = spills = 0.0
    for access in nest.accesses:
        executed = vectors / _reuse(access, nest)
        if access.local:
            over = _footprint(access, nest, _first_in_registers(nest)) > cpu.vector_registers * cpu.vector_bits // 8
            spills += vectors if over else 0.0
        elif access.store:
            stores += executed
        elif lane is not None and lane in access.loops and lane not in access.last:
            gathers += executed * lanes
        else:
            loads += executed
    l1, l2 = (_traffic(nest, size, count) * share for size in (cpu.l1_bytes, cpu.l2_bytes))
    operations = vectors * (nest.operations + CALL_CYCLES * nest.calls)
    return Account(operations, loads, stores, gathers, spills, l1, l2, body, imbalance, parallel, iterations)


def _first_in_registers(nest: _Nest) -> int:
    """The outermost of the innermost loops that are all unrolled or vectorized."""
    first = len(nest.kinds)
    while first and nest.kinds[first - 1] in (UNROLLED, VECTORIZED):
        first -= 1
    return first


def _reuse(access: _Access, nest: _Nest) -> int:
    """The number of iterations of unrolled loops that reuse a loaded register."""
    first = _first_in_registers(nest)
    return prod(
        e for i, (e, kind) in enumerate(zip(nest.extents, nest.kinds, strict=True))
        if i >= first and kind == UNROLLED and i not in access.loops
    )  # fmt: skip


def _footprint(access: _Access, nest: _Nest, depth: int) -> int:
    """Bytes accessed by the loops from ``depth`` inwards."""
    return access.bytes * prod(nest.extents[i] for i in access.loops if i >= depth)


def _traffic(nest: _Nest, cache: int, count: int) -> float:
    """Bytes fetched into a cache of this size: the footprint of the outermost loops that fit, each time they run."""
    outside = [access for access in nest.accesses if not access.local]
    for depth in range(count + 1):
        touched = sum(_footprint(access, nest, depth) for access in outside)
        if touched <= cache or depth == count:
            return touched * float(prod(nest.extents[:depth]))
    return 0.0
