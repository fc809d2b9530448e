"""``nn.KVCache``: a cache of one sequence that a module holds, as a state that exported functions take and return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..ir.expr import ExprLike, IntImm, PrimExpr, Var, as_expr, logical_and
from ..ir.module import IRModule
from ..nn import op, spec
from ..nn.module import Module
from ..nn.tensor import Tensor
from ..tir import te
from ..tir.nodes import Block, BlockRealize, Buffer, BufferStore, IterVar, PrimFunc, loop_nest, root_block
from ..tir.regions import infer_regions
from .kv_state import ATTENTION_CACHE

INITIALIZE = "_initialize_effect"


@dataclass(eq=False)
class KVCache:
    """A cache of elements of ``unit_shape`` along a sequence, with room for ``init_seq_len``; it grows when it is full.

    Its functions are exported with ``"effect_mode": "packed"``, which takes all the caches as one argument, or
    ``"plain"``, one argument each. They return their results and the caches; ``_initialize_effect`` makes them.
    """

    init_seq_len: int
    unit_shape: Sequence[int]
    dtype: str = "float32"
    _array: Tensor | None = field(default=None, init=False, repr=False)
    _filled: PrimExpr | None = field(default=None, init=False, repr=False)

    def create(self) -> tuple[Tensor, PrimExpr]:
        """An empty cache: its array [init_seq_len, *unit_shape], and how many of its elements are filled."""
        return op.zeros((self.init_seq_len, *self.unit_shape), self.dtype), IntImm(0, "int64")

    def set_state(self, array: Tensor | None, filled: PrimExpr | None) -> None:
        """Begin to trace a function with the cache in this state; None ends it."""
        self._array, self._filled = array, filled

    @property
    def state(self) -> tuple[Tensor, PrimExpr]:
        """The array and the number of filled elements. Raises SpecError outside of functions that take the cache."""
        if self._array is None or self._filled is None:
            hint = 'export the method with "effect_mode": "packed" in its "$" options'
            raise spec.SpecError("nn.KVCache: the function does not take the module's caches", hint=hint)
        return self._array, self._filled

    def append(self, new_element: Tensor) -> None:
        """Store [n, *unit_shape] after the filled elements. Raises SpecError for another dtype or shape."""
        array, filled = self.state
        shape = tuple(new_element.shape)
        units = [s.value if isinstance(s, IntImm) else s for s in shape[1:]]
        if new_element.dtype != self.dtype or units != list(self.unit_shape):
            wanted = f"{self.dtype} [n, {', '.join(map(str, self.unit_shape))}]"
            raise spec.SpecError(f"nn.KVCache.append: got {new_element.dtype} {list(shape)}; expected {wanted}")
        func = _append(self.unit_shape, self.dtype)
        out = (tuple(array.shape), self.dtype)
        (stored,) = op.tensor_ir_inplace_op(func, "kv_cache_append", [array, new_element], [0], [out], [filled])
        self.set_state(stored, filled + shape[0])

    def view(self, seq_len: ExprLike) -> Tensor:
        """The filled elements, [seq_len, *unit_shape]. Calls with another length than the filled one are refused."""
        array, filled = self.state
        result = op.tensor_expr_op(_first, "kv_cache_view", [array, as_expr(seq_len, like="int64"), filled])
        assert isinstance(result, Tensor)
        return result

    def to(self, dtype: str | None = None) -> None:
        """Set the dtype of the elements."""
        self.dtype = dtype or self.dtype


def _append(unit: Sequence[int], dtype: str) -> PrimFunc:
    """``main(cache, x, filled)``: stores x from index ``filled`` on, as far as there is room."""
    capacity, count, filled = Var("capacity"), Var("count"), Var("filled")
    rest = tuple(IntImm(u) for u in unit)
    cache, x = Buffer("cache", (capacity, *rest), dtype), Buffer("x", (count, *rest), dtype)
    iters = tuple(IterVar(Var(f"v{i}"), size, "S") for i, size in enumerate(x.shape))
    loops = [(Var(f"i{i}"), size) for i, size in enumerate(x.shape)]
    first, *others = (it.var for it in iters)
    store = BufferStore(cache, x[(first, *others)], (filled + first, *others))
    block = Block("append", iters, *infer_regions(store, iters), store)
    fits = logical_and(loops[0][0] + filled < capacity)
    nest = loop_nest(loops, BlockRealize(tuple(v for v, _ in loops), fits, block))
    return PrimFunc((cache, x, filled), root_block(nest), {"tir.noalias": True})


def _first(cache: te.Tensor, seq_len: PrimExpr, filled: PrimExpr) -> te.Tensor:
    """The first elements; zeros where the cache is too short, which the caller notices and calls again."""
    te.require_equal(seq_len, filled, "the length of the view and the filled elements of the cache")

    def element(i: PrimExpr, *unit: PrimExpr) -> PrimExpr:
        return te.if_then_else(i < cache.shape[0], cache[(i, *unit)], te.const(0, cache.dtype))

    return te.compute((seq_len, *cache.shape[1:]), element, name="kv_cache_view")


# -- exported functions -------------------------------------------------------------------------------------------


def caches(module: Module) -> dict[str, KVCache]:
    """The caches of a module and its sub-modules, by dotted path."""
    found: dict[str, KVCache] = {}
    for path, inner in module.named_modules():
        for name, value in vars(inner).items():
            if isinstance(value, KVCache):
                found[f"{path}.{name}" if path else name] = value
    return found


def with_caches(functions: spec.ModuleSpec, module: Module) -> spec.ModuleSpec:
    """The functions with the caches as inputs and results, where their effect mode says so, and the one that starts."""
    found = caches(module)
    changed = {name: _taking(f, found) for name, f in functions.functions.items()}
    if found:
        changed[INITIALIZE] = spec.Function(lambda: tuple(c.create() for c in found.values()), {}, "none")
    return spec.ModuleSpec(changed)


def mark_start(mod: IRModule) -> IRModule:
    """The module with the function that makes the caches, if there is one, marked as such."""
    func: Any = mod.functions.get(INITIALIZE)
    return mod if func is None else mod.with_function(INITIALIZE, func.with_attr("creates", {"kind": ATTENTION_CACHE}))


def _taking(function: spec.Function, found: dict[str, KVCache]) -> spec.Function:
    if function.effect_mode == "none":
        return function
    inputs = dict(function.inputs)
    for name, cache in found.items():
        name = name.replace(".", "_")
        array = spec.Tensor((f"{name}_capacity", *cache.unit_shape), cache.dtype)
        inputs[name] = spec.Object(_only, {name: array}, mutable=True)
        inputs[f"{name}_filled"] = spec.Int()
    call = partial(_call, function.call, list(found.values()))
    return replace(function, call=call, inputs=inputs, effect_mode="none")


def _only(**tensors: Tensor) -> Tensor:
    (tensor,) = tensors.values()
    return tensor


def _call(method: Callable[..., Any], found: list[KVCache], *args: Any) -> Any:
    """Trace a method with its caches, array and filled elements of each, as last arguments."""
    count = len(args) - 2 * len(found)
    given = args[count:]
    try:
        for i, cache in enumerate(found):
            cache.set_state(given[2 * i], given[2 * i + 1])
        result = method(*args[:count])
        return result, tuple(cache.state for cache in found)
    finally:
        for cache in found:
            cache.set_state(None, None)
