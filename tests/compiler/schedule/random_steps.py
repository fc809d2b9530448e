"""Random schedule steps: each draws blocks and loops of the function, and may raise ScheduleError."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

from mlc_compiler.ir.expr import IntImm, Var, is_const
from mlc_compiler.ir.visitor import Rewriter, substitute, walk
from mlc_compiler.tir.nodes import SERIAL, UNROLLED, For, PrimFunc, SeqStmt
from mlc_compiler.tir.schedule import Schedule, ScheduleError
from mlc_compiler.tir.threads import merge_nested_threads
from mlc_errors import MLCError

Step = Callable[[Schedule, Random], object]
FACTORS = (2, 3, 4, 5, 8)
SCOPES = ("global", "local")


def _block(s: Schedule, r: Random) -> str:
    return r.choice(s.get_blocks())


def _loops(s: Schedule, r: Random) -> list[Var]:
    return s.get_loops(_block(s, r))


def _loop(s: Schedule, r: Random) -> Var:
    return r.choice([n.var for n in walk(s.func.body) if isinstance(n, For)])


def _split(s: Schedule, r: Random) -> None:
    loop, a, b = _loop(s, r), r.choice(FACTORS), r.choice(FACTORS)
    s.split(loop, r.choice([[None, a], [a, None], [None, a, b], [a, b]]))


def _fuse(s: Schedule, r: Random) -> None:
    loops = _loops(s, r)
    start = r.randint(0, max(0, len(loops) - 2))
    s.fuse(*loops[start : start + r.randint(2, 3)])


def _reorder(s: Schedule, r: Random) -> None:
    loops = list(_loops(s, r))
    r.shuffle(loops)
    s.reorder(*loops)


def _swap(s: Schedule, r: Random) -> None:
    loops = _loops(s, r)
    start = r.randint(0, max(0, len(loops) - 2))
    s.reorder(*reversed(loops[start : start + 2]))


def _tile(s: Schedule, r: Random) -> None:
    loop = _loop(s, r)
    s.split(loop, factors=s.sample_perfect_tile(loop, n=r.randint(2, 3)))


def _sampled_split(s: Schedule, r: Random) -> None:
    s.split(_loop(s, r), factors=[None, s.sample_categorical([2, 3, 4], [0.5, 0.25, 0.25])])


def _neighbours(s: Schedule, r: Random) -> list[Var]:
    sequences = [n.stmts for n in walk(s.func.body) if isinstance(n, SeqStmt)]
    pairs = [(a.var, b.var) for q in sequences for a, b in pairwise(q) if isinstance(a, For) and isinstance(b, For)]
    return list(r.choice(pairs)) if pairs else []


def _tensorize(s: Schedule, r: Random) -> None:
    """Tensorize two loops; raises ScheduleError unless they match the instruction."""
    block = _block(s, r)
    loops = s.get_loops(block)[-2:] or [_loop(s, r)]
    if s.block(block).init is not None and r.random() < 0.5:
        s.decompose_reduction(block, loops[-1])
    s.tensorize(loops[0], r.choice(["avx512.vpdpbusd", "avx512.nibbles"]))


def _bind(s: Schedule, r: Random) -> None:
    """Bind a loop unless it would be longer than an outer loop bound to the same axis, which lowering rejects."""
    loop, trial = _loop(s, r), s.copy()
    trial.bind(loop, "threadIdx.x")
    try:
        merge_nested_threads(trial.func.body)
    except MLCError as error:
        raise ScheduleError(error.message) from error
    s.bind(loop, "threadIdx.x")


def _pad_einsum(s: Schedule, r: Random) -> None:
    block = _block(s, r)
    s.pad_einsum(block, [r.choice([1, *FACTORS]) for _ in s.block(block).iter_vars])


def _index_map(s: Schedule, r: Random, block: str) -> str:
    """A map that splits, fuses and reorders the variables of a block, perhaps not evenly."""
    sizes = [it.extent.value if isinstance(it.extent, IntImm) else 0 for it in s.block(block).iter_vars]
    names = [f"i{n}" for n in range(len(sizes))]
    parts: list[str] = []
    for name, size in zip(names, sizes, strict=True):
        factor = r.choice(FACTORS)
        cuts = [[name], [f"{name} // {factor}", f"{name} % {factor}"]]
        fused = [[f"{parts.pop()} * {size} + {name}"]] if parts and size and r.random() < 0.3 else []
        parts += r.choice(fused or cuts)
    r.shuffle(parts)
    return f"lambda {', '.join(names)}: ({', '.join(parts)},)"


def _transform_block_layout(s: Schedule, r: Random) -> None:
    block = _block(s, r)
    s.transform_block_layout(block, _index_map(s, r, block))


def _sampled_place(s: Schedule, r: Random) -> None:
    block = _block(s, r)
    s.compute_at(block, s.sample_compute_location(block))


def _decompose_padding(s: Schedule, r: Random) -> None:
    block = _block(s, r)
    s.decompose_padding(block, r.choice(s.get_loops(block) or [_loop(s, r)]))


def _rolling_buffer(s: Schedule, r: Random) -> None:
    """Roll a buffer, sometimes after its producer was moved into tiles of a reader."""
    block = _block(s, r)
    loops = [loops[0] for reader in s.get_consumers(block)[:1] if (loops := s.get_loops(reader))]
    if loops and r.random() < 0.7:
        outer, _ = s.split(loops[0], [None, r.choice([1, 2, 3, 4])])
        s.compute_at(block, outer)
    s.rolling_buffer(block, 0)


def _partition(s: Schedule, r: Random) -> None:
    tops = s.func.body.block.body  # type: ignore[attr-defined]
    nests = tops.stmts if isinstance(tops, SeqStmt) else (tops,)
    chosen = [n.var for n in nests if isinstance(n, For)]
    s.partition(chosen, [r.randint(1, 3)])


STEPS: dict[str, Step] = {
    "split": _split,
    "fuse": _fuse,
    "reorder": _reorder,
    "swap": _swap,
    "parallel": lambda s, r: s.parallel(_loop(s, r)),
    "vectorize": lambda s, r: s.vectorize(_loop(s, r)),
    "unroll": lambda s, r: s.unroll(_loop(s, r)),
    "bind": _bind,
    "compute_inline": lambda s, r: s.compute_inline(_block(s, r)),
    "reverse_compute_inline": lambda s, r: s.reverse_compute_inline(_block(s, r)),
    "compute_at": lambda s, r: s.compute_at(_block(s, r), _loop(s, r)),
    "reverse_compute_at": lambda s, r: s.reverse_compute_at(_block(s, r), _loop(s, r)),
    "cache_read": lambda s, r: s.cache_read(_block(s, r), r.randint(0, 1), r.choice(SCOPES)),
    "cache_write": lambda s, r: s.cache_write(_block(s, r), r.randint(0, 1), r.choice(SCOPES)),
    "cache_inplace": lambda s, r: s.cache_inplace(_block(s, r), r.randint(0, 1), r.choice(SCOPES)),
    "reindex": lambda s, r: s.reindex(_block(s, r), (r.choice(["read", "write"]), r.randint(0, 1))),
    "rolling_buffer": _rolling_buffer,
    "prefetch": lambda s, r: s.prefetch(_block(s, r), _loop(s, r), r.randint(0, 1), r.randint(1, 3)),
    "set_scope": lambda s, r: s.set_scope(_block(s, r), 0, r.choice(SCOPES)),
    "decompose_reduction": lambda s, r: s.decompose_reduction(_block(s, r), _loop(s, r)),
    "decompose_padding": _decompose_padding,
    "transform_block_layout": _transform_block_layout,
    "rfactor": lambda s, r: s.rfactor(_loop(s, r), r.choice([0, -1, 1])),
    "factor_reduction": lambda s, r: s.factor_reduction(_block(s, r), r.choice([2, 3, 4])),
    "pad_einsum": _pad_einsum,
    "blockize": lambda s, r: s.blockize(_loop(s, r)),
    "tensorize": _tensorize,
    "merge": lambda s, r: s.merge(*_neighbours(s, r)),
    "partition": _partition,
    "annotate": lambda s, r: s.annotate(r.choice([_loop, _block])(s, r), "pragma", 1),
    "unannotate": lambda s, r: s.unannotate(r.choice([_loop, _block])(s, r), "pragma"),
    "sample_perfect_tile": _tile,
    "sample_categorical": _sampled_split,
    "sample_compute_location": _sampled_place,
}


class _Backwards(Rewriter):
    def rewrite_For(self, node: For) -> For:
        body = self(node.body)
        if node.kind in (SERIAL, UNROLLED) or is_const(node.extent, 1):
            return node if body is node.body else replace(node, body=body)
        return replace(node, body=substitute(body, {node.var: node.extent - 1 - node.var}))


def backwards(func: PrimFunc) -> PrimFunc:
    """The function with its concurrent loops reversed."""
    return replace(func, body=_Backwards()(func.body))
