"""Builders for loops in LLVM IR, with loop-carried values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from . import llvm_ir as ll
from .values import I64, i64


def while_loop(
    b: ll.IRBuilder,
    name: str,
    initial: Sequence[ll.Value],
    condition: Callable[..., ll.Value],
    body: Callable[..., Sequence[ll.Value]],
) -> list[ll.Value]:
    """``while condition(*values): values = body(*values)``, from ``initial``; returns the final values."""
    before = b.block
    head, inside, done = (b.append_basic_block(f"{name}.{part}") for part in ("if", "do", "end"))
    b.branch(head)
    b.position_at_end(head)
    nodes = [b.phi(value.type) for value in initial]
    for phi, value in zip(nodes, initial, strict=True):
        phi.add_incoming(value, before)
    values: list[ll.Value] = [*nodes]
    b.cbranch(condition(*values), inside, done)
    b.position_at_end(inside)
    for phi, value in zip(nodes, body(*values), strict=True):
        phi.add_incoming(value, b.block)
    b.branch(head)
    b.position_at_end(done)
    return values


def for_range(b: ll.IRBuilder, name: str, start: ll.Value, end: ll.Value, body: Callable[[ll.Value], None]) -> ll.Value:
    """``for i in range(start, end): body(i)`` over i64 values; returns the final ``i``."""

    def step(i: ll.Value) -> list[ll.Value]:
        body(i)
        return [b.add(i, i64(1))]

    assert start.type == I64
    return while_loop(b, name, [start], lambda i: b.icmp_signed("<", i, end), step)[0]


@contextmanager
def rotated_loop(
    b: ll.IRBuilder, name: str, start: ll.Value, end: ll.Value
) -> Iterator[tuple[ll.Value, Callable[[], ll.Terminator]]]:
    """``for i in range(start, end)`` over i64 values, tested at the bottom; the ``with`` body emits the loop body.

    Yields ``i``, and a function that returns the latch branch after the ``with`` block, for loop metadata.
    """
    before = b.block
    body, done = b.append_basic_block(f"{name}.body"), b.append_basic_block(f"{name}.end")
    b.cbranch(b.icmp_signed("<", start, end), body, done)
    b.position_at_end(body)
    counter = b.phi(I64, name=name)
    counter.add_incoming(start, before)
    branches: list[ll.Terminator] = []
    yield counter, branches.pop
    following = b.add(counter, i64(1), flags=["nsw"])
    counter.add_incoming(following, b.block)
    branches.append(b.cbranch(b.icmp_signed("<", following, end), body, done))
    b.position_at_end(done)
