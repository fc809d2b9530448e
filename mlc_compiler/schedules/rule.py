"""Base class of schedule rules, and analyses that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.expr import BinaryOp, Cast, IntImm, PrimExpr, Var, without_casts
from ..ir.simplify import Analyzer
from ..ir.visitor import nodes_of, walk
from ..target import Target
from ..tir.calling import step_along
from ..tir.index_map import IndexMap
from ..tir.nodes import Block, BlockRealize, Buffer, BufferLoad, BufferStore, PrimFunc, is_root
from ..tir.schedule import Schedule, ScheduleError


class Rule(ABC):
    """Base class of schedule rules, which schedule the tensor functions that match a pattern.

    must_apply: a ScheduleError of a step is a defect and propagates; otherwise the next rule is tried.
    """

    must_apply = False

    @abstractmethod
    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        """The schedule of ``func``; None when it does not match."""


class TunableRule(Rule):
    """A rule with tunable choices: sampling steps, whose default decisions are the rule's own choices.

    ``mlc_compiler/tuning`` searches the other decisions.
    """

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        return self.schedule(Schedule(func), target)

    @abstractmethod
    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        """Schedule the function of ``s``, which has no steps yet; return None when it does not match."""


def choose(s: Schedule, candidates: Sequence[int], default: int) -> int:
    """Sample one of several distinct candidates, uniformly; the default decision is ``default``."""
    even = [1.0 / len(candidates)] * len(candidates)
    return int(s.sample_categorical(list(candidates), even, decision=candidates.index(default)))


@dataclass(frozen=True)
class Blocks:
    """The blocks of a function, in order of execution."""

    in_order: tuple[Block, ...]

    @property
    def reductions(self) -> tuple[Block, ...]:
        return tuple(b for b in self.in_order if b.is_reduction)

    @property
    def last(self) -> Block:
        return self.in_order[-1]


def analyse(func: PrimFunc) -> Blocks | None:
    """The blocks of a schedulable function; None when it has no root block or no blocks."""
    if not is_root(func.body):
        return None
    found = [n.block for n in nodes_of(func.body, BlockRealize) if n.block.name != "root"]
    return Blocks(tuple(found)) if found else None


def stored_buffer(block: Block) -> Buffer:
    """The buffer of a block's first store; most blocks have only one."""
    return nodes_of(block.body, BufferStore)[0].buffer


def inline_intermediates(s: Schedule, names: Sequence[str]) -> None:
    """Inline each of the blocks into its readers where this is legal."""
    for name in names:
        try:
            s.compute_inline(name)
        except ScheduleError:
            continue


def contiguous_axis(block: Block) -> int | None:
    """The axis with stride 1 of a block's only load, when the last axis has a stride other than 0 and 1; else None."""
    loads = nodes_of(block.body, BufferLoad)
    variables = [it.var for it in block.iter_vars]
    if len(loads) != 1 or len(variables) < 2:
        return None
    analyzer = Analyzer()
    *steps, last = (step_along(loads[0], v, analyzer) for v in variables)
    return steps.index(1) if last not in (0, 1) and 1 in steps else None


def accumulate_locally(s: Schedule, product: str, epilogue: Sequence[str]) -> str:
    """Accumulate a matmul in registers and fuse its epilogue into one block, whose name is returned.

    epilogue: the names of the blocks after the matmul, in order.
    """
    after = [s.cache_write(product, "local"), *epilogue]
    for name in after[:-1]:
        s.compute_inline(name)
    return after[-1]


def column_tiles(factor: int, transposed: bool = False) -> IndexMap:
    """The packed layout ``[ceil(N / factor), K, factor]`` of a matrix [N, K], or [K, N] if ``transposed``."""
    if transposed:
        return IndexMap.from_func(lambda k, n: (n // factor, k, n % factor))
    return IndexMap.from_func(lambda n, k: (n // factor, k, n % factor))


@dataclass(frozen=True)
class MatmulBlock:
    """A block ``out[m…, n] += x[m…, k] * w[n, k]``: its row variables m, column n and reduction k.

    transposed: the right operand is ``w[…, k, n]``; its leading axes may be the first row variables (a batched matmul).
    """

    block: Block
    rows: tuple[Var, ...]
    column: Var
    reduction: Var
    activation: Buffer
    weight: Buffer
    transposed: bool


def match_matmul(block: Block) -> MatmulBlock | None:
    """Match a matmul block; None for any other block."""
    reduction = [it.var for it in block.iter_vars if it.kind == "R"]
    if len(reduction) != 1 or not isinstance(block.body, BufferStore) or not isinstance(block.body.value, BinaryOp):
        return None
    product = block.body.value.b
    product = product.value if isinstance(product, Cast) else product
    if block.body.value.op != "+" or not (isinstance(product, BinaryOp) and product.op == "*"):
        return None
    a, b = _load(product.a), _load(product.b)
    if a is None or b is None:
        return None
    return _with_weight(block, a, b) or _with_weight(block, b, a)


def single_matmul(blocks: Blocks) -> MatmulBlock | None:
    """The only reduction of a function, if it is a matmul; else None."""
    if len(blocks.reductions) != 1:
        return None
    return match_matmul(blocks.reductions[0])


def _with_weight(block: Block, x: BufferLoad, w: BufferLoad) -> MatmulBlock | None:
    """Match a matmul with weight ``w``, whose column must be the last axis of the result."""
    spatial, reduction = [it.var for it in block.iter_vars if it.kind == "S"], block.iter_vars[-1].var
    if not spatial or len(w.indices) < 2:
        return None
    *rows, column = spatial
    *lead, first, second = w.indices
    transposed = first is reduction and second is column
    if not transposed and (lead or first is not column or second is not reduction):
        return None
    if any(n is column for n in walk((x.indices, lead))) or not x.indices or x.indices[-1] is not reduction:
        return None
    if any(index is rows[-1] for index in lead) if rows else lead:
        return None
    return MatmulBlock(block, tuple(rows), column, reduction, x.buffer, w.buffer, transposed)


def _load(expr: PrimExpr) -> BufferLoad | None:
    inner = without_casts(expr)
    return inner if isinstance(inner, BufferLoad) else None


def constant_extent(expr: PrimExpr) -> int | None:
    return expr.value if isinstance(expr, IntImm) else None


def largest_divisor(extent: int, limit: int) -> int:
    """The largest divisor of ``extent`` up to ``limit``; ``limit`` for an extent of 0."""
    return next(d for d in range(min(extent or limit, limit), 0, -1) if extent % d == 0)


def round_up(number: int, factor: int) -> int:
    """``number`` rounded up to a multiple of ``factor``."""
    return -(-number // factor) * factor
