"""Writes modules.json: modules that Apache TVM prints, arguments for them, and what TVM computes.

Run it in an environment of its own: ``pip install apache-tvm==0.27.0.post1 && python generate.py``.
Each module is printed as operators, after LegalizeOps and after FuseTIR, or after each step of a schedule.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax, te
from tvm.relax.frontend import nn

R = relax.op
SIZES = {"n": 3, "m": 5}
N, M = (tvm.tirx.Var(name, "int64") for name in SIZES)
RNG = np.random.default_rng(0)
CASES: dict[str, dict[str, Any]] = {}


def tensor(*shape: Any, dtype: str = "float32") -> Any:
    return relax.TensorType(shape, dtype)


def pack(array: np.ndarray) -> dict[str, Any]:
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": array.ravel().tolist()}


def argument(info: Any) -> np.ndarray:
    shape = tuple(SIZES[d.name] if hasattr(d, "name") else int(d) for d in info.shape.values)
    dtype = str(info.dtype)
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        return RNG.integers(0, 5, shape).astype(dtype)
    return RNG.uniform(0.1, 2, shape).astype(dtype)


def run(mod: tvm.IRModule, args: list[np.ndarray]) -> list[dict[str, Any]]:
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(a) for a in args])
    return [pack(r.numpy()) for r in ([result] if hasattr(result, "numpy") else result)]


def stages(mod: tvm.IRModule) -> dict[str, str]:
    legal = relax.transform.LegalizeOps()(mod)
    fused = relax.transform.AnnotateTIROpPattern()(legal)
    for step in (relax.transform.FuseOps(), relax.transform.FuseTIR()):
        fused = step(fused)
    return {"operators": mod.script(), "legal": legal.script(), "fused": fused.script()}


def operator(name: str, build: Callable[..., Any], *infos: Any) -> None:
    """A function of one operator, or of a few."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", info) for i, info in enumerate(infos)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(build(*params)))
        builder.emit_func_output(result)
    mod = builder.get()
    args = [argument(info) for info in infos]
    CASES[name] = {"texts": stages(mod), "args": [pack(a) for a in args], "results": run(mod, args)}


def operators() -> None:
    for name in "exp log rsqrt tanh sigmoid erf negative abs floor ceil round".split():
        operator(name, getattr(R, name), tensor(N, 4))
    for name in "add subtract multiply divide power maximum minimum equal less greater_equal".split():
        operator(name, getattr(R, name), tensor(N, 4), tensor(1, 4))
    for name in "relu silu gelu gelu_tanh softmax".split():
        operator(f"nn_{name}", getattr(R.nn, name), tensor(2, N, 8))
    operator("matmul", R.matmul, tensor(N, 16), tensor(16, M))
    half = (tensor(2, N, 16, dtype="float16"), tensor(2, 16, 8, dtype="float16"))
    operator("matmul_half", lambda a, b: R.matmul(a, b, out_dtype="float32"), *half)
    operator("linear", R.linear, tensor(N, 16), tensor(5, 16))
    operator("sum", lambda a: R.sum(a, axis=[1], keepdims=True), tensor(N, 4, 5))
    operator("mean", lambda a: R.mean(a, axis=-1), tensor(N, 4))
    operator("variance", lambda a: R.variance(a, axis=[-1]), tensor(N, 4))
    operator("max", lambda a: R.max(a, axis=0), tensor(N, 4))
    operator("argmax", lambda a: R.argmax(a, axis=1), tensor(N, 4))
    operator("cumsum", lambda a: R.cumsum(a, axis=1), tensor(N, 4))
    operator("permute_dims", lambda a: R.permute_dims(a, [1, 0, 2]), tensor(N, 4, 5))
    operator("reshape", lambda a: R.reshape(a, (N * 4, 5)), tensor(N, 4, 5))
    operator("split", lambda a: R.split(a, 2, axis=1), tensor(N, 4))
    operator("concat", lambda a, b: R.concat([a, b], axis=0), tensor(N, 4), tensor(M, 4))
    operator("take", lambda a, b: R.take(a, b, axis=0), tensor(9, 4), tensor(N, dtype="int32"))
    operator("astype", lambda a: R.astype(a, "float16"), tensor(N, 4))
    operator("where", R.where, tensor(N, 4, dtype="bool"), tensor(N, 4), tensor(N, 4))
    operator("tril", lambda a: R.tril(a, 0), tensor(N, N))
    operator("triu", lambda a: R.triu(a, 1), tensor(N, N))
    operator("expand_dims", lambda a: R.expand_dims(a, [0, 2]), tensor(N, 4))
    operator("strided_slice", lambda a: R.strided_slice(a, [0, 1], [0, 1], [2, 4], [1, 2]), tensor(4, 8))
    operator("clip", lambda a: R.clip(a, 0, 1), tensor(N, 4))
    operator("rms_norm", lambda a, w: R.nn.rms_norm(a, w, axes=[-1]), tensor(N, 4), tensor(4))
    operator("layer_norm", lambda a, w, b: R.nn.layer_norm(a, w, b, axes=[-1]), tensor(N, 4), tensor(4), tensor(4))
    operator("scale", lambda a: R.multiply(a, relax.const(2.0, "float32")), tensor(N, 4))


class Gate(nn.Module):
    """An embedding, a norm, two projections, a gate."""

    def __init__(self) -> None:
        self.embed, self.norm = nn.Embedding(100, 8), nn.RMSNorm(8, -1, 1e-5, bias=False)
        self.up = nn.Linear(8, 16)

    def main(self, ids: nn.Tensor) -> nn.Tensor:
        hidden = self.norm(self.embed(ids))
        left, right = nn.op.split(self.up(hidden), 2, axis=-1)
        return nn.op.softmax(nn.op.silu(left) * right + hidden)


def modules() -> None:
    spec = {"main": {"ids": nn.spec.Tensor(["n"], "int32"), "$": {"param_mode": "plain", "effect_mode": "none"}}}
    mod, _ = Gate().export_tvm(spec)
    args = [argument(p.ty) for p in mod["main"].params]
    CASES["nn_module"] = {"texts": stages(mod), "args": [pack(a) for a in args], "results": run(mod, args)}


def schedules() -> None:
    """A matrix product with a maximum, step by step; its last parameter is the result."""
    size = 16
    a, b = (te.placeholder((size, size), name=name) for name in "AB")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((size, size), lambda i, j: te.max(c[i, j], 1.0), name="D")
    s = tvm.s_tir.Schedule(te.create_prim_func([a, b, d]))
    texts = {"start": s.mod.script()}
    block = s.get_sblock("C")
    i, j, kk = s.get_loops(block)
    (i0, i1), (j0, j1), (k0, k1) = (s.split(x, [None, f]) for x, f in ((i, 8), (j, 5), (kk, 4)))
    s.reorder(i0, j0, k0, i1, k1, j1)
    texts["reorder"] = s.mod.script()
    s.reverse_compute_at(s.cache_write(block, 0, "local"), j0)
    s.compute_at(s.cache_read(block, 0, "global"), k0)
    texts["cache"] = s.mod.script()
    s.vectorize(j1)
    s.parallel(s.fuse(i0, j0))
    s.unroll(k1)
    s.annotate(k0, "pragma_auto_unroll_max_step", 16)
    texts["kinds"] = s.mod.script()
    s.decompose_reduction(block, k0)
    texts["decompose"] = s.mod.script()
    s = tvm.s_tir.Schedule(te.create_prim_func([a, b, d]))
    i, j, kk = s.get_loops(s.get_sblock("C"))
    s.rfactor(s.split(kk, [None, 4])[1], 0)
    texts["rfactor"] = s.mod.script()
    s = tvm.s_tir.Schedule(te.create_prim_func([a, b, d]))
    i, j, kk = s.get_loops(s.get_sblock("C"))
    for loop, thread in zip(s.split(i, [None, 5]), ("blockIdx.x", "threadIdx.x")):
        s.bind(loop, thread)
    s.blockize(kk)
    texts["blockize"] = s.mod.script()
    x, y = (RNG.integers(-3, 4, (size, size)).astype("float32") for _ in range(2))
    result = [pack(np.maximum(x @ y, np.float32(1)))]
    CASES["schedule"] = {"texts": texts, "args": [pack(x), pack(y)], "results": result}


if __name__ == "__main__":
    operators()
    modules()
    schedules()
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in CASES.items())
    Path(__file__).with_name("modules.json").write_text(f"{{\n{lines}\n}}\n")
    print(sum(len(case["texts"]) for case in CASES.values()), "texts of", len(CASES), "modules")
