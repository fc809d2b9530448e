"""Kernels of the models at their real sizes: resources reported by the assembler, and numbers of launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import pytest

from mlc_compiler.backends.cuda.images import Resources, find_assembler, llvm_modules
from mlc_compiler.backends.cuda.launches import LAUNCH, Kernel
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.ir.expr import Call
from mlc_compiler.ir.module import GlobalVar, IRModule
from mlc_compiler.ir.visitor import walk
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.relax.nodes import Function
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import Evaluate, IfThenElse, SeqStmt, Stmt
from mlc_toolchain.source import resolve_source
from model_zoo.registry import export_model, get
from quantization.schemes import get_scheme

HOPPER, OTHERS = Target("cuda:sm_90a"), Target({"kind": "cuda", "arch": ["sm_80", "sm_120"]})
LLAMAS = ("smollm2-135m-instruct", "llama-3.1-8b-instruct")
FAMILIES = ("gpt2",)
CASES = [
    *((name, "q4f16_1", HOPPER) for name in (*LLAMAS, *FAMILIES)),
    (LLAMAS[0], "q4f16_1", OTHERS),
    *((LLAMAS[-1], scheme, HOPPER) for scheme in ("q8f16_1", "q0f16")),
]
NAMES = [f"{name}-{scheme}-{target.cpu}" for name, scheme, target in CASES]
SPILLS = {("sm_120", "linear"): 96}
"""Greatest bytes of local memory of products and attention where they are not 0; to be lowered."""
LAYERS = 2


@dataclass(frozen=True)
class Compiled:
    """A compiled model with few layers. resources: by architecture and kernel."""

    mod: IRModule
    kernels: Mapping[str, Kernel]
    resources: Mapping[str, Mapping[str, Resources]]


@cache
def lowered(name: str, scheme: str, target: Target) -> IRModule:
    """The module of a preset with ``LAYERS`` layers."""
    raw = resolve_source(name).config()
    config = replace(get(raw["model_type"]).config.from_hf(raw), num_hidden_layers=LAYERS)
    return run_passes(export_model(config, get_scheme(scheme), "float16").mod, pipeline(target))


def compiled(name: str, scheme: str, target: Target) -> Compiled:
    """The model assembled for all architectures of the target. Raises CodegenError if the assembler rejects it."""
    mod, kernels = lowered(name, scheme, target), dict[str, Kernel]()
    texts = assemble_modules(llvm_modules(mod, target, kernels), target)
    assemble = find_assembler()
    assert assemble is not None
    names = target.attrs["arch"]
    assert isinstance(names, tuple)
    return Compiled(
        mod, kernels, {a: {k: r for t in texts for k, r in assemble(t, a).resources.items()} for a in names}
    )


def launches_of_a_layer(mod: IRModule, name: str) -> int:
    """Kernel launches of a graph function between the KV cache appends of two consecutive layers."""
    called = [n.name for b in mod[name].bindings for n in walk(b.value) if isinstance(n, GlobalVar)]
    first, second = (i for i, callee in enumerate(called) if callee.startswith("append"))
    return sum(_launches(mod[callee].body) for callee in called[first:second])


def _launches(s: Stmt) -> int:
    """The maximum number of launches by a statement of a host function."""
    if isinstance(s, SeqStmt):
        return sum(map(_launches, s.stmts))
    if isinstance(s, IfThenElse):
        return max(_launches(s.then_case), _launches(s.else_case) if s.else_case is not None else 0)
    if isinstance(s, Evaluate):
        return int(isinstance(s.value, Call) and s.value.op == LAUNCH)
    return _launches(s.body)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "scheme", "target"), CASES, ids=NAMES)
def test_kernels_assemble_and_spill_little(name: str, scheme: str, target: Target) -> None:
    model = compiled(name, scheme, target)
    for arch, resources in model.resources.items():
        assert resources.keys() == model.kernels.keys(), arch
        for part in ("linear", "attention"):
            greatest = SPILLS.get((arch, part), 0)
            stacks = {n: r.stack_bytes + r.spill_bytes for n, r in resources.items() if part in n}
            assert len(stacks) >= 2
            assert {n: size for n, size in stacks.items() if size > greatest} == {}, arch


@pytest.mark.parametrize("scheme", ["q4f16_1", "q0f16"])
@pytest.mark.parametrize("name", LLAMAS)
def test_launches_of_a_decoder_layer(name: str, scheme: str) -> None:
    """Norm and product, append, attention, product and sum, norm and product and SwiGLU, product and sum."""
    mod = lowered(name, scheme, HOPPER)
    assert {f for f, g in mod.of_type(Function).items() if g.attrs.get("num_input")} >= {"decode", "prefill"}
    assert (launches_of_a_layer(mod, "decode"), launches_of_a_layer(mod, "prefill")) == (6, 8)
