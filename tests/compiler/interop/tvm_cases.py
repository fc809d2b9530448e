"""Modules made with Apache TVM, the oracle: operators, fused groups, nn modules, scheduled tensor functions.

``CASES`` maps names to functions that return a module and its arguments. Graph modules come as operators, legalized to
tensor functions, and fused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax, te
from tvm.relax.frontend import nn

R = relax.op
SIZES = {"n": 3, "m": 5}
N, M = (tvm.tirx.Var(name, "int64") for name in SIZES)


@dataclass(frozen=True)
class Case:
    """A module whose function ``main`` takes ``args``; a tensor function takes its results as last arguments."""

    mod: tvm.IRModule
    args: list[np.ndarray]
    num_results: int = 0

    @property
    def text(self) -> str:
        """The module as printed by TVM."""
        return self.mod.script()

    def expected(self) -> list[np.ndarray]:
        """The results computed by TVM."""
        executable = tvm.compile(self.mod, target="llvm")
        tensors = [tvm.runtime.tensor(a) for a in self.args]
        if self.num_results:
            executable["main"](*tensors)
            return [t.numpy() for t in tensors[-self.num_results :]]
        result = relax.VirtualMachine(executable, tvm.cpu())["main"](*tensors)
        return [r.numpy() for r in ([result] if hasattr(result, "numpy") else result)]


CASES: dict[str, Callable[[], Case]] = {}


def tensor(*shape: Any, dtype: str = "float32") -> Any:
    return relax.TensorType(shape, dtype)


def argument(info: Any, rng: np.random.Generator) -> np.ndarray:
    shape = tuple(SIZES[d.name] if hasattr(d, "name") else int(d) for d in info.shape.values)
    dtype = str(info.dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        return rng.integers(1, 5, shape).astype(dtype)
    return rng.uniform(0.1, 2, shape).astype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)


def graph(build: Callable[..., Any], infos: tuple[Any, ...]) -> tvm.IRModule:
    """A graph function of the operators that ``build`` emits."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", info) for i, info in enumerate(infos)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(build(*params)))
        builder.emit_func_output(result)
    return builder.get()


def fused(mod: tvm.IRModule) -> tvm.IRModule:
    for step in (relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(), relax.transform.FuseTIR()):
        mod = step(mod)
    return mod


def add(name: str, make: Callable[[], tvm.IRModule], stages: str) -> None:
    """Add cases for the stages of one graph module."""

    def case(stage: str) -> Case:
        mod = make()
        args = [argument(p.ty, np.random.default_rng(len(name))) for p in mod["main"].params]
        if stage != "operators":
            mod = relax.transform.LegalizeOps()(mod)
        return Case(fused(mod) if stage == "fused" else mod, args)

    for stage in stages.split():
        CASES[f"{name}-{stage}"] = lambda stage=stage: case(stage)


def operator(name: str, build: Callable[..., Any], *infos: Any, stages: str = "operators legal") -> None:
    add(name, lambda: graph(build, infos), stages)


# -- operators --------------------------------------------------------------------------------------------------------


def elementwise() -> None:
    for name in "exp log rsqrt tanh sigmoid erf abs ceil round".split():
        operator(name, getattr(R, name), tensor(N, 5), stages="operators")
    for name in "sin cos sqrt negative floor".split():
        operator(name, getattr(R, name), tensor(N, 5), stages="legal")
    for name in "relu silu gelu gelu_tanh".split():
        operator(f"nn.{name}", getattr(R.nn, name), tensor(2, N, 8), stages="legal")
    for name in "subtract divide power maximum".split():
        operator(name, getattr(R, name), tensor(N, 4), tensor(1, 4), stages="operators")
    for name in "less not_equal".split():
        operator(name, getattr(R, name), tensor(N, 4, dtype="int32"), tensor(4, dtype="int32"), stages="legal")
    for dtype in ("float64", "float16", "int8", "uint8"):
        operator(f"add-{dtype}", R.add, tensor(N, 7, dtype=dtype), tensor(N, 1, dtype=dtype), stages="legal")
    operator("logical", R.logical_and, tensor(N, 4, dtype="bool"), tensor(4, dtype="bool"), stages="operators")
    operator("floor_divide", R.floor_divide, tensor(N, 4, dtype="int32"), tensor(4, dtype="int32"), stages="operators")
    operator("floor_mod", R.floor_mod, tensor(N, 4, dtype="int32"), tensor(4, dtype="int32"), stages="operators")
    operator("clip", lambda a: R.clip(a, 0, 1), tensor(N, 4), stages="operators")
    operator("where", R.where, tensor(N, 4, dtype="bool"), tensor(N, 4), tensor(1, 4), stages="operators")
    operator("scale", lambda a: R.multiply(a, relax.const(2.5, "float32")), tensor(N, 4), stages="legal")
    for dtype in ("float16", "int32", "bool"):
        operator(f"astype-{dtype}", lambda a, dtype=dtype: R.astype(a, dtype), tensor(N, 4), stages="legal")
    for name in "square sign log_add_exp floor_mod bitwise_and".split():
        dtype = "int32" if name in ("floor_mod", "bitwise_and") else "float32"
        infos = [tensor(N, 4, dtype=dtype)] * (1 if name in ("square", "sign") else 2)
        operator(name, getattr(R, name), *infos, stages="legal")


def reductions() -> None:
    operator("sum", lambda a: R.sum(a, axis=[1], keepdims=True), tensor(N, 4, 5))
    operator("sum-all", R.sum, tensor(N, 4, 5), stages="legal")
    operator("mean", lambda a: R.mean(a, axis=-1), tensor(N, 9), stages="operators")
    operator("variance", lambda a: R.variance(a, axis=[-1]), tensor(N, 4), stages="legal")
    operator("max", lambda a: R.max(a, axis=0), tensor(N, 4), stages="legal")
    operator("min", lambda a: R.min(a, axis=[0, 2]), tensor(N, 4, 5), stages="operators")
    operator("argmax", lambda a: R.argmax(a, axis=1), tensor(N, 4), stages="operators")
    operator("argmin", lambda a: R.argmin(a, axis=0), tensor(N, 4), stages="legal")
    operator("cumsum", lambda a: R.cumsum(a, axis=1), tensor(N, 4), stages="operators")
    operator("topk", lambda a: R.topk(a, 3, axis=1, dtype="int32"), tensor(N, 8), stages="operators")
    operator("prod", lambda a: R.prod(a, axis=1), tensor(N, 4), stages="legal")
    operator("std", lambda a: R.std(a, axis=1), tensor(N, 4), stages="legal")
    for axis in (-1, 1):
        operator(f"softmax{axis}", lambda a, axis=axis: R.nn.softmax(a, axis=axis), tensor(2, N, 8))
    operator("log_softmax", lambda a: R.nn.log_softmax(a, axis=-1), tensor(N, 8), stages="legal")
    operator("rms_norm", lambda a, w: R.nn.rms_norm(a, w, axes=[-1]), tensor(N, 4), tensor(4))
    infos = (tensor(N, 4), tensor(4), tensor(4))
    operator("layer_norm", lambda a, w, b: R.nn.layer_norm(a, w, b, axes=[-1]), *infos)


def products() -> None:
    operator("matmul", R.matmul, tensor(N, 16), tensor(16, M))
    operator("matmul-batch", R.matmul, tensor(2, N, 16), tensor(2, 16, 8), stages="legal")
    operator("matmul-broadcast", R.matmul, tensor(2, 3, N, 7), tensor(7, 9), stages="operators")
    operator("matmul-vector", R.matmul, tensor(16), tensor(16, M), stages="legal")
    operator("matmul-float64", R.matmul, tensor(N, 16, dtype="float64"), tensor(16, 8, dtype="float64"), stages="legal")
    half = (tensor(2, N, 16, dtype="float16"), tensor(2, 16, 8, dtype="float16"))
    operator("matmul-half", lambda a, b: R.matmul(a, b, out_dtype="float32"), *half)
    integers = (tensor(N, 16, dtype="int32"), tensor(16, 8, dtype="int32"))
    operator("matmul-int32", R.matmul, *integers, stages="legal")
    operator("linear", R.linear, tensor(N, 16), tensor(5, 16))
    operator("outer", R.outer, tensor(N), tensor(M), stages="legal")
    operator("einsum", lambda a, b: R.einsum([a, b], "ij,jk->ik"), tensor(3, 4), tensor(4, 5), stages="legal")
    image, filters = tensor(1, 3, 8, 8), tensor(4, 3, 3, 3)
    operator("conv2d", lambda a, w: R.nn.conv2d(a, w, padding=1), image, filters, stages="legal")
    operator("pool", lambda a: R.nn.max_pool2d(a, (2, 2), (2, 2)), image, stages="legal")


def movements() -> None:
    operator("permute_dims", lambda a: R.permute_dims(a, [1, 0, 2]), tensor(N, 4, 5), stages="operators")
    operator("reshape", lambda a: R.reshape(a, (N * 4, 5)), tensor(N, 4, 5))
    operator("split", lambda a: R.split(a, 2, axis=1), tensor(N, 4))
    operator("concat", lambda a, b: R.concat([a, b], axis=0), tensor(N, 4), tensor(M, 4))
    operator("take", lambda a, b: R.take(a, b, axis=0), tensor(9, 4), tensor(N, dtype="int32"))
    operator("tril", lambda a: R.tril(a, 0), tensor(N, N), stages="operators")
    operator("triu", lambda a: R.triu(a, 1), tensor(N, N), stages="legal")
    operator("expand_dims", lambda a: R.expand_dims(a, [0, 2]), tensor(N, 4), stages="legal")
    operator("squeeze", lambda a: R.squeeze(a, [1]), tensor(N, 1, 4), stages="operators")
    operator("broadcast_to", lambda a, b: R.add(R.broadcast_to(a, (N, 4)), b), tensor(1, 4), tensor(N, 4))
    operator(
        "strided_slice", lambda a: R.strided_slice(a, [0, 1], [0, 1], [2, 4], [1, 2]), tensor(4, 8), stages="legal"
    )
    operator("flip", lambda a: R.flip(a, 1), tensor(N, 4), stages="legal")
    operator("tile", lambda a: R.tile(a, (2, 3)), tensor(N, 4), stages="legal")
    operator("repeat", lambda a: R.repeat(a, 2, 1), tensor(N, 4), stages="legal")
    operator("stack", lambda a, b: R.stack([a, b], 1), tensor(N, 4), tensor(N, 4), stages="legal")
    operator("full", lambda a: R.full((2, 3), relax.const(1.5, "float32"), "float32"), tensor(N), stages="legal")


# -- groups of operators, nn modules ----------------------------------------------------------------------------------


def groups() -> None:
    def gate(x: Any, w: Any, v: Any) -> Any:
        return R.multiply(R.nn.silu(R.matmul(x, w)), R.matmul(x, v))

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = R.multiply(R.matmul(q, R.permute_dims(k, [0, 2, 1])), relax.const(0.25, "float32"))
        return R.matmul(R.nn.softmax(scores, axis=-1), v)

    def chain(x: Any, y: Any) -> Any:
        return R.add(R.exp(R.subtract(x, y)), R.sqrt(R.multiply(y, y)))

    def two(x: Any) -> Any:
        return relax.Tuple([R.sum(R.exp(x), axis=[1]), R.tanh(R.add(x, x))])

    every = "operators legal fused"
    operator("gate", gate, tensor(N, 16), tensor(16, 12), tensor(16, 12), stages=every)
    operator("attention", attention, *[tensor(2, N, 16)] * 3, stages=every)
    operator("chain", chain, tensor(N, 33), tensor(N, 33), stages=every)
    operator("two", two, tensor(N, 9), stages=every)


class Gate(nn.Module):
    """An embedding, a norm, projections, a gate."""

    def __init__(self) -> None:
        self.embed, self.norm = nn.Embedding(100, 8), nn.RMSNorm(8, -1, 1e-5, bias=False)
        self.up, self.down = nn.Linear(8, 24), nn.Linear(12, 8, bias=False)

    def main(self, ids: nn.Tensor) -> nn.Tensor:
        hidden = self.norm(self.embed(ids))
        left, right = nn.op.split(self.up(hidden), 2, axis=-1)
        return nn.op.softmax(self.down(nn.op.silu(left) * right) + hidden)


class Attention(nn.Module):
    """Causal self-attention of one sequence, without a cache."""

    def __init__(self) -> None:
        self.qkv, self.out = nn.Linear(16, 48, bias=False), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def main(self, x: nn.Tensor) -> nn.Tensor:
        n = x.shape[1]
        parts = nn.op.split(self.qkv(self.norm(x)), 3, axis=-1)
        q, k, v = (nn.op.permute_dims(nn.op.reshape(p, (1, n, 2, 8)), [0, 2, 1, 3]) for p in parts)
        scores = nn.op.softmax(nn.op.matmul(q, nn.op.permute_dims(k, [0, 1, 3, 2])) * 0.125, axis=-1)
        mixed = nn.op.reshape(nn.op.permute_dims(nn.op.matmul(scores, v), [0, 2, 1, 3]), (1, n, 16))
        return self.out(mixed) + x


class Expression(nn.Module):
    """An nn module with a tensor expression."""

    def main(self, x: nn.Tensor) -> nn.Tensor:
        def shifted(a: te.Tensor) -> te.Tensor:
            return te.compute(a.shape, lambda i, j: a[i, (j + 1) % 6] + a[i, j] * 2.0, name="shifted")

        return nn.op.tensor_expr_op(shifted, "shifted", [nn.op.relu(x)])


def modules() -> None:
    def exported(make: type[nn.Module], name: str, shape: list[Any], dtype: str) -> tvm.IRModule:
        inputs = {name: nn.spec.Tensor(shape, dtype), "$": {"param_mode": "plain", "effect_mode": "none"}}
        return make().export_tvm({"main": inputs})[0]

    every = "operators legal fused"
    add("nn-gate", lambda: exported(Gate, "ids", ["n"], "int32"), every)
    add("nn-attention", lambda: exported(Attention, "x", [1, "n", 16], "float32"), "operators fused")
    add("nn-expression", lambda: exported(Expression, "x", ["n", 6], "float32"), "operators")


# -- tensor functions -------------------------------------------------------------------------------------------------

SIZE = 24


def product(rows: Any = SIZE) -> Any:
    a, b = te.placeholder((rows, SIZE), name="A"), te.placeholder((SIZE, SIZE), name="B")
    k = te.reduce_axis((0, SIZE), name="k")
    c = te.compute((rows, SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, te.compute((rows, SIZE), lambda i, j: te.max(c[i, j], 1.0), name="D")])


Steps = Callable[[Any, Any, Any, Any, Any], None]


def _tiled(s: Any, c: Any, i: Any, j: Any, k: Any) -> None:
    (i0, i1), (j0, j1), (k0, k1) = (s.split(x, [None, f]) for x, f in ((i, 8), (j, 4), (k, 6)))
    s.reorder(i0, j0, k0, i1, k1, j1)


def _uneven(s: Any, c: Any, i: Any, j: Any, k: Any) -> None:
    (i0, i1), (j0, j1) = (s.split(x, [None, f]) for x, f in ((i, 7), (j, 5)))
    s.reorder(i0, j0, i1, j1)


def _vectorized(s: Any, c: Any, i: Any, j: Any, k: Any) -> None:
    j0, j1 = s.split(j, [None, 8])
    s.reorder(j0, k, j1)
    s.vectorize(j1)
    s.parallel(i)
    s.decompose_reduction(c, k)


def _fused(s: Any, c: Any, i: Any, j: Any, k: Any) -> None:
    s.reverse_compute_at(s.get_sblock("D"), i)
    s.parallel(i)
    s.unroll(s.split(k, [None, 4])[1])


def _cached(s: Any, c: Any, i: Any, j: Any, k: Any) -> None:
    i0, i1 = s.split(i, [None, 8])
    s.compute_at(s.cache_read(c, 1, "global"), i0)
    s.reverse_compute_at(s.cache_write(c, 0, "local"), i1)


def _inlined(s: Any, c: Any, i: Any, j: Any, k: Any) -> None:
    s.reverse_compute_at(s.get_sblock("D"), j)
    s.fuse(i, j)


def _rfactor(s: Any, c: Any, i: Any, j: Any, k: Any) -> None:
    s.rfactor(s.split(k, [None, 4])[1], 0)


def _blockized(s: Any, c: Any, i: Any, j: Any, k: Any) -> None:
    s.blockize(k)


SCHEDULES: dict[str, Steps] = {
    "plain": lambda s, c, i, j, k: None,
    "tiled": _tiled,
    "uneven": _uneven,
    "vectorized": _vectorized,
    "fused": _fused,
    "cached": _cached,
    "inside": _inlined,
    "rfactor": _rfactor,
    "blockized": _blockized,
}


def symbolic_product() -> Case:
    rows = np.random.default_rng(2).integers(-3, 4, (11, SIZE)).astype("float32")
    return Case(tvm.IRModule({"main": product(N)}), [rows, rows[:1].T @ rows[:1], np.zeros_like(rows)], 1)


def schedules() -> None:
    def case(steps: Steps) -> Case:
        s = tvm.s_tir.Schedule(product())
        block = s.get_sblock("C")
        steps(s, block, *s.get_loops(block))
        rng = np.random.default_rng(1)
        a, b = (rng.integers(-3, 4, (SIZE, SIZE)).astype("float32") for _ in range(2))
        return Case(s.mod, [a, b, np.zeros_like(a)], 1)

    for name, steps in SCHEDULES.items():
        CASES[f"schedule-{name}"] = lambda steps=steps: case(steps)
    CASES["symbolic-product"] = symbolic_product


for family in (elementwise, reductions, products, movements, groups, modules, schedules):
    family()
