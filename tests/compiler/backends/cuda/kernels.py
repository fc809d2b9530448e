"""Kernels as TVMScript, and queries on lowered ones."""

from __future__ import annotations

import re
from textwrap import dedent, indent

from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import walk
from mlc_compiler.script import parse
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.threads import sync_scope


def module(text: str, **sizes: int) -> IRModule:
    """Parse the module of one tensor function, with the names in ``sizes`` replaced in its text."""
    for name, size in sizes.items():
        text = re.sub(rf"\b{name}\b", str(size), text)
    parsed = parse("@I.ir_module\nclass Module:\n" + indent(dedent(text), "    "))
    assert isinstance(parsed, IRModule)
    return parsed


def main(mod: IRModule, name: str = "main") -> PrimFunc:
    """The tensor function of that name."""
    return mod.of_type(PrimFunc)[name]


def kernel(body: str, **sizes: int) -> IRModule:
    """A function of ``x`` and ``y``, both float32 [256], with shared ``s`` and ``r`` [256], by 64 threads ``t``."""
    text = f"""
@T.prim_func
def main(x: T.Buffer((256,), "float32"), y: T.Buffer((256,), "float32")):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        s = T.decl_buffer((256,), "float32", scope="shared")
        r = T.decl_buffer((256,), "float32", scope="shared")
        for t in T.thread_binding(64, thread="threadIdx.x"):
{indent(dedent(body).strip(chr(10)), " " * 12)}
"""
    return module(text, **sizes)


def syncs(mod: IRModule) -> int:
    """The number of block barriers in ``main``."""
    return sum(sync_scope(node) == "shared" for node in walk(main(mod).body))
