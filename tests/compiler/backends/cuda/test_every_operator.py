"""Every graph operator compiles for GPUs: to PTX, and to machine code without a stack."""

from __future__ import annotations

from mlc_compiler.backends.cuda.images import find_assembler, llvm_modules
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.ir.module import IRModule
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.target import Target
from tests.compiler.relax.check_op import graph_of
from tests.compiler.relax.test_every_operator import CASES, M, N

TARGET = Target("cuda:sm_80")


def test_every_operator_is_machine_code() -> None:
    functions = {}
    for name, case in CASES.items():
        symbol = name.replace(".", "_")
        graph = graph_of(name, case.args, case.attrs, symbolic=(N, M))["main"]
        functions[symbol] = graph.with_attr("global_symbol", symbol)
    mod = run_passes(IRModule(functions), (*entries(), *pipeline(TARGET)))
    assemble = find_assembler()
    assert assemble is not None
    kernels: dict = {}
    found = {}
    for ptx in assemble_modules(llvm_modules(mod, TARGET, kernels), TARGET):
        found |= assemble(ptx, TARGET.cpu).resources
    assert set(found) == set(kernels)
    assert len(found) > 100
    stacks = {name: r.stack_bytes for name, r in found.items() if r.stack_bytes or r.spill_bytes}
    assert all(name.startswith("paged_attention") for name in stacks), stacks
