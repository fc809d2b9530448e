"""Random schedule steps: each is drawn from what the function looks like, and may be refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from mlc_compiler.ir.expr import Var, is_const
from mlc_compiler.ir.visitor import Rewriter, substitute, walk
from mlc_compiler.tir.nodes import SERIAL, UNROLLED, For, PrimFunc, SeqStmt
from mlc_compiler.tir.schedule import Schedule

Step = Callable[[Schedule, st.DataObject], None]
FACTORS = st.sampled_from([2, 3, 4, 5, 8])
SCOPES = st.sampled_from(["global", "local"])


def _block(s: Schedule, data: st.DataObject) -> str:
    return data.draw(st.sampled_from(s.get_blocks()), label="block")


def _loops(s: Schedule, data: st.DataObject) -> list[Var]:
    return s.get_loops(_block(s, data))


def _loop(s: Schedule, data: st.DataObject) -> Var:
    loops = [n.var for n in walk(s.func.body) if isinstance(n, For)]
    return data.draw(st.sampled_from(loops), label="loop")


def _split(s: Schedule, data: st.DataObject) -> None:
    loop, a, b = _loop(s, data), data.draw(FACTORS), data.draw(FACTORS)
    s.split(loop, data.draw(st.sampled_from([[None, a], [a, None], [None, a, b], [a, b]])))


def _fuse(s: Schedule, data: st.DataObject) -> None:
    loops = _loops(s, data)
    start = data.draw(st.integers(0, max(0, len(loops) - 2)))
    s.fuse(*loops[start : start + data.draw(st.integers(2, 3))])


def _reorder(s: Schedule, data: st.DataObject) -> None:
    s.reorder(*data.draw(st.permutations(_loops(s, data))))


def _swap(s: Schedule, data: st.DataObject) -> None:
    loops = _loops(s, data)
    start = data.draw(st.integers(0, max(0, len(loops) - 2)))
    s.reorder(*reversed(loops[start : start + 2]))


def _rfactor(s: Schedule, data: st.DataObject) -> None:
    s.rfactor(_loop(s, data), data.draw(st.sampled_from([0, -1, 1])))


def _sample(s: Schedule, data: st.DataObject) -> None:
    loop = _loop(s, data)
    s.split(loop, factors=s.sample_perfect_tile(loop, n=2))


def _neighbours(s: Schedule, data: st.DataObject) -> list[Var]:
    sequences = [n.stmts for n in walk(s.func.body) if isinstance(n, SeqStmt)]
    pairs = [(a.var, b.var) for q in sequences for a, b in pairwise(q) if isinstance(a, For) and isinstance(b, For)]
    return list(data.draw(st.sampled_from(pairs))) if pairs else []


def _partition(s: Schedule, data: st.DataObject) -> None:
    tops = s.func.body.block.body  # type: ignore[attr-defined]
    nests = tops.stmts if isinstance(tops, SeqStmt) else (tops,)
    chosen = [n.var for n in nests if isinstance(n, For)]
    s.partition(chosen, [data.draw(st.integers(1, 3))])


STEPS: dict[str, Step] = {
    "split": _split,
    "fuse": _fuse,
    "reorder": _reorder,
    "swap": _swap,
    "parallel": lambda s, d: s.parallel(_loop(s, d)),
    "vectorize": lambda s, d: s.vectorize(_loop(s, d)),
    "unroll": lambda s, d: s.unroll(_loop(s, d)),
    "bind": lambda s, d: s.bind(_loop(s, d), "threadIdx.x"),
    "compute_inline": lambda s, d: s.compute_inline(_block(s, d)),
    "reverse_compute_inline": lambda s, d: s.reverse_compute_inline(_block(s, d)),
    "compute_at": lambda s, d: s.compute_at(_block(s, d), _loop(s, d)),
    "reverse_compute_at": lambda s, d: s.reverse_compute_at(_block(s, d), _loop(s, d)),
    "cache_read": lambda s, d: s.cache_read(_block(s, d), d.draw(st.integers(0, 1)), d.draw(SCOPES)),
    "cache_write": lambda s, d: s.cache_write(_block(s, d), 0, d.draw(SCOPES)),
    "set_scope": lambda s, d: s.set_scope(_block(s, d), 0, d.draw(SCOPES)),
    "decompose_reduction": lambda s, d: s.decompose_reduction(_block(s, d), _loop(s, d)),
    "rfactor": _rfactor,
    "blockize": lambda s, d: s.blockize(_loop(s, d)),
    "merge": lambda s, d: s.merge(*_neighbours(s, d)),
    "partition": _partition,
    "annotate": lambda s, d: s.annotate(_loop(s, d), "pragma", 1),
    "sample": _sample,
}


class _Backwards(Rewriter):
    def rewrite_For(self, node: For) -> For:
        body = self(node.body)
        if node.kind in (SERIAL, UNROLLED) or is_const(node.extent, 1):
            return node if body is node.body else replace(node, body=body)
        return replace(node, body=substitute(body, {node.var: node.extent - 1 - node.var}))


def backwards(func: PrimFunc) -> PrimFunc:
    """The function with the iterations of its concurrent loops run from last to first."""
    return replace(func, body=_Backwards()(func.body))
