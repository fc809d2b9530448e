"""Barriers against a reference that compares bytes: between dependent calls, and no others."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from hypothesis import given, settings

from mlc_compiler.backends.cpu.passes.place_barriers import PlaceBarriers
from mlc_compiler.ir.module import GlobalVar, IRModule
from mlc_compiler.relax.nodes import Call, ExternFunc, Function, Op, PrimValue, TupleGetItem
from mlc_compiler.script import parse, to_text
from mlc_compiler.tir.intrinsics import written_buffers
from mlc_compiler.verifier import verify
from tests.compiler.passes.kernel_graphs import RESULTS, STEPS, Steps, build, planned
from tests.compiler.passes.test_plan_memory import number

Byte = tuple[object, int]


@dataclass
class Touched:
    """The bytes that a call reads and writes; a call of a registered function depends on all calls."""

    reads: set[Byte] = field(default_factory=set)
    writes: set[Byte] = field(default_factory=set)
    waits: bool = False

    def depends_on(self, other: Touched) -> bool:
        crossed = self.writes & (other.reads | other.writes) or self.reads & other.writes
        return self.waits or bool(crossed)


def segments(mod: IRModule, sizes: dict[str, int]) -> list[list[Touched]]:
    """The accesses of the calls of ``main``, split at barriers; a registered function is a separate segment."""
    func = mod["main"]
    assert isinstance(func, Function)
    memory: dict[int, set[Byte]] = {}
    result: list[list[Touched]] = [[]]
    for binding in func.bindings:
        call = binding.value
        assert isinstance(call, Call)
        if isinstance(call.target, GlobalVar):
            result[-1].append(_touched(mod, call, memory))
        elif isinstance(call.target, ExternFunc):
            result += [[Touched(waits=True)], []]
        elif isinstance(call.target, Op) and call.target.name == "builtin.barrier":
            result.append([])
        elif isinstance(call.target, Op) and call.target.name == "builtin.alloc_tensor":
            info = binding.var.struct_info
            count = int(np.prod([number(s, sizes) for s in info.shape])) * np.dtype(info.dtype).itemsize
            begin = number(call.attrs["offset"], sizes)
            memory[id(binding.var)] = {("workspace", begin + i) for i in range(count)}
    return [s for s in result if s]


def _touched(mod: IRModule, call: Call, memory: dict[int, set[Byte]]) -> Touched:
    func = mod[call.target.name]
    stored = written_buffers(func.body)
    touched = Touched()
    tensors = [a for a in call.args if not isinstance(a, PrimValue)]
    for arg, buffer in zip(tensors, func.buffers, strict=True):
        bytes_of = memory.get(id(arg), {(_name(arg), 0)})
        (touched.writes if id(buffer) in stored else touched.reads).update(bytes_of)
    return touched


def _name(arg: object) -> object:
    return (arg.tuple_value.name, arg.index) if isinstance(arg, TupleGetItem) else arg.name  # type: ignore[attr-defined]


@settings(max_examples=40)
@given(STEPS, RESULTS)
def test_barriers_are_where_the_reference_has_them(steps: Steps, results: list[int]) -> None:
    plan = planned(build(steps, results))
    printed = to_text(plan)
    for source in (plan, parse(printed.text, printed.constants)):
        mod = PlaceBarriers().run(source)
        verify(mod)
        parts = segments(mod, {"n": 6, "m": 9})
        for part in parts:
            assert not any(b.depends_on(a) for i, a in enumerate(part) for b in part[i + 1 :])
        for before, part in pairwise(parts):
            assert part[0].waits or before[0].waits or any(part[0].depends_on(a) for a in before)
