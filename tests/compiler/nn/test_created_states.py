"""States that an exported function creates, and KV caches at run time."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.compat import nn, relax
from mlc_compiler.compat.kv_state import KVState, KVStateError
from mlc_compiler.nn import op
from mlc_compiler.nn.spec import SpecError
from mlc_errors import UnsupportedError

HEADS, SIZE, WIDTH = 3, 4, 12
OPTIONS = {
    "support_sliding_window": 0,
    "layer_partition": relax.ShapeExpr([0, 1]),
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": SIZE,
    "rope_mode": 1,
    "rope_scale": 1,
    "rope_theta": 100,
    "rope_scaling": {},
    "rope_ext_factors": relax.PrimValue(0),
    "rotary_dim": SIZE,
    "dtype": "float32",
    "target": None,
}


class Attention(nn.Module):
    """Attention whose queries, keys and values are its input, 4-D as ``attention_with_fused_qkv`` takes them."""

    def __init__(self, **options: Any):
        self.options = OPTIONS | options

    def forward(self, x: nn.Tensor, cache: nn.PagedKVCache) -> Any:
        b, s, _ = x.shape
        qkv = op.reshape(op.concat([x, x, x], axis=-1), (b, s, 3 * HEADS, SIZE))
        return cache.attention_with_fused_qkv(0, qkv, HEADS), cache

    def create(self, max_batch_size: Any, max_total_seq_len: Any, prefill_chunk_size: Any, page_size: Any) -> Any:
        return nn.TIRPagedKVCache(
            max_batch_size=max_batch_size,
            max_total_seq_len=max_total_seq_len,
            prefill_chunk_size=prefill_chunk_size,
            page_size=page_size,
            **self.options,
        )


def machine(**options: Any) -> relax.VirtualMachine:
    cache = nn.spec.Object(object_type=nn.PagedKVCache)
    sizes = ("max_batch_size", "max_total_seq_len", "prefill_chunk_size", "page_size")
    spec = {
        "forward": {"x": nn.spec.Tensor(["b", "s", WIDTH]), "cache": cache, "$": {"param_mode": "none"}},
        "create": {**dict.fromkeys(sizes, int), "$": {"param_mode": "none"}},
    }
    mod, named_params = Attention(**options).export_tvm(spec)
    assert named_params == [] and mod["create"].attrs["creates"]["kind"] == "paged_kv"
    return relax.VirtualMachine(relax.build(mod))


@pytest.fixture(scope="module")
def vm() -> relax.VirtualMachine:
    return machine()


def rotated(x: np.ndarray, first: int, theta: float = 100.0, scale: float = 1.0) -> np.ndarray:
    """RoPE: x [s, H, D] with pairs (d, d + D/2) rotated by the angles of positions first, first + 1, … (Su et al.
    2021)."""
    angles = np.arange(first, first + len(x))[:, None, None] * scale * theta ** -(np.arange(0, SIZE, 2) / SIZE)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


def expected(x: np.ndarray, **options: float) -> np.ndarray:
    """Causal self-attention of x [s, H, D]."""
    q = rotated(x, 0, **options)
    scores = np.einsum("qhd,khd->hqk", q, q) / np.sqrt(SIZE)
    scores[:, ~np.tril(np.ones(scores.shape[1:], bool))] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), x)


def call(vm: relax.VirtualMachine, cache: KVState, x: np.ndarray, *seq_ids: int) -> np.ndarray:
    """Call the function with the same number of tokens for each sequence; x [b, s, H, D]."""
    cache.begin_forward(seq_ids, [x.shape[1]] * len(seq_ids))
    result, same = vm["forward"](np.ascontiguousarray(x.reshape(*x.shape[:2], WIDTH)), cache)
    cache.end_forward()
    assert same is cache
    return result


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(0, 1, (*shape, HEADS, SIZE)).astype(np.float32)


def test_sequences_of_a_cache_of_codes():
    check_sequences(machine(dtype="int8"), tolerance=3e-2)


def test_sequences_of_a_cache(vm: relax.VirtualMachine):
    check_sequences(vm, tolerance=1e-4)


def check_sequences(vm: relax.VirtualMachine, tolerance: float) -> None:
    close = partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)
    cache, x = vm["create"](3, 60, 20, 16), normal(2, 20)
    for seq_id in (5, 6):
        cache.add_sequence(seq_id)
    both = np.concatenate([call(vm, cache, x[:, :17], 5, 6), call(vm, cache, x[:, 17:], 5, 6)], axis=1)
    close(both, np.stack([expected(s) for s in x]))
    cache.popn(5, 4)
    again = call(vm, cache, x[:1, 16:], 5)
    close(again[0], expected(x[0])[16:])
    cache.fork_sequence(6, 7, 18)
    forked = call(vm, cache, x[1:, 18:], 7)
    close(forked[0], expected(x[1])[18:])
    cache.remove_sequence(5)
    cache.add_sequence(8)
    close(call(vm, cache, x[:1], 8)[0], expected(x[0]))


def test_wrong_uses_of_a_cache(vm: relax.VirtualMachine):
    cache = vm["create"](1, 20, 20, 16)
    with pytest.raises(KVStateError, match="outside of begin_forward"):
        vm["forward"](np.zeros((1, 1, WIDTH), np.float32), cache)
    cache.add_sequence(0)
    for use, message in (
        (lambda: cache.add_sequence(0), "sequence 0 exists already"),
        (lambda: cache.add_sequence(1), "holds 1 sequences"),
        (lambda: cache.remove_sequence(3), "no sequence 3"),
        (lambda: cache.popn(0, 1), "sequence 0 has 0 tokens"),
        (lambda: cache.begin_forward([0], [100]), "the cache is full: 100 tokens need 7 pages"),
    ):
        with pytest.raises(KVStateError, match=message):
            use()
    with pytest.raises(ValueError, match="page_table has size 32; expected 16"):
        vm["create"](1, 20, 20, 32)


@pytest.mark.parametrize(
    ("options", "reference"),
    [
        ({"rope_mode": 2}, {}),
        ({"rope_mode": 0}, {"scale": 0.0}),
        ({"rope_scale": 0.5, "rope_theta": 30}, {"scale": 0.5, "theta": 30.0}),
    ],
)
def test_rotations(options: dict[str, Any], reference: dict[str, float]):
    vm, x = machine(**options), normal(1, 9)
    cache = vm["create"](1, 20, 20, 16)
    cache.add_sequence(0)
    np.testing.assert_allclose(call(vm, cache, x, 0)[0], expected(x[0], **reference), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"support_sliding_window": 1}, "support_sliding_window is 1; expected 0"),
        ({"rope_scaling": {"factor": 8}}, "rope_scaling is {'factor': 8}; expected {}"),
        ({"layer_partition": relax.ShapeExpr([0, 1, 2])}, r"layer_partition is \[0, 1, 2\]; expected \[0, 1\]"),
    ],
)
def test_refused_options(options: dict[str, Any], message: str):
    with pytest.raises(UnsupportedError, match=message):
        machine(**options)


def test_a_view_needs_a_function_that_creates_the_state():
    cache = nn.spec.Object(object_type=nn.PagedKVCache)
    with pytest.raises(SpecError, match="cache: got 0 functions that create a state; expected 1"):
        Attention().export({"forward": {"x": nn.spec.Tensor(["b", "s", WIDTH]), "cache": cache}})


def test_a_created_state_is_a_tuple_of_arrays():
    spec = dict.fromkeys(("max_batch_size", "max_total_seq_len", "prefill_chunk_size", "page_size"), int)
    mod, _ = Attention().export({"create": {**spec, "$": {"param_mode": "none"}}})
    keys, values, table = build(mod)["create"](2, 40, 10, 16)
    assert keys.shape == (1, 5, HEADS, SIZE, 16) and values.shape == (1, 5, HEADS, 16, SIZE)
    assert not keys.any() and not values.any() and (table == np.full((2, 3), -1)).all()
