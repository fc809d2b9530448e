"""``nn.KVCache``: the attention of the first GPT-2 tutorials, with caches that the module holds, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlc_compiler.compat as tvm
from mlc_compiler.compat import nn, relax
from mlc_compiler.compat.kv_state import KVStateError
from mlc_compiler.compat.nn import op
from mlc_compiler.nn.spec import SpecError
from mlc_compiler.verifier import verify

EMBED, HEADS = 24, 3
HEAD = EMBED // HEADS


class GPT2Attention(nn.Module):
    """As the tutorial has it: fused projections, caches of keys and values, a mask of the call's queries."""

    def __init__(self, context: int) -> None:
        self.c_attn = nn.Linear(EMBED, 3 * EMBED)
        self.c_proj = nn.Linear(EMBED, EMBED)
        self.k_cache = nn.KVCache(context, [HEADS, HEAD])
        self.v_cache = nn.KVCache(context, [HEADS, HEAD])

    def forward(self, hidden_states: nn.Tensor, attention_mask: nn.Tensor, total_seq_len: Any) -> nn.Tensor:
        b, s, _ = hidden_states.shape
        q, k, v = op.split(self.c_attn(hidden_states), 3, axis=-1)
        q, k, v = (op.reshape(x, (b, s, HEADS, HEAD)) for x in (q, k, v))
        self.k_cache.append(op.squeeze(k, axis=0))
        self.v_cache.append(op.squeeze(v, axis=0))
        shape = (b, total_seq_len, HEADS, HEAD)
        k = op.reshape(self.k_cache.view(total_seq_len), shape)
        v = op.reshape(self.v_cache.view(total_seq_len), shape)
        q, k, v = (op.permute_dims(x, [0, 2, 1, 3]) for x in (q, k, v))
        weights = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])) / HEAD**0.5
        weights = op.softmax(weights + attention_mask, axis=-1)
        mixed = op.permute_dims(op.matmul(weights, v), [0, 2, 1, 3])
        return self.c_proj(op.reshape(mixed, (b, s, EMBED)))


class GPT2(nn.Module):
    """Two layers, each with caches of its own."""

    def __init__(self, context: int) -> None:
        self.h = nn.ModuleList([GPT2Attention(context) for _ in range(2)])

    def prefill(self, inputs: nn.Tensor, mask: nn.Tensor, total_seq_len: Any) -> nn.Tensor:
        for layer in self.h:
            inputs = inputs + layer(inputs, mask, total_seq_len)
        return inputs

    def get_default_spec(self, effect_mode: str = "packed") -> Any:
        raw = {
            "prefill": {
                "inputs": nn.spec.Tensor([1, "seq_len", EMBED], "float32"),
                "mask": nn.spec.Tensor([1, 1, "seq_len", "total_seq_len"], "float32"),
                "total_seq_len": int,
                "$": {"param_mode": "plain", "effect_mode": effect_mode},
            }
        }
        return nn.spec.ModuleSpec.from_raw(raw, self)


def compiled(context: int = 16, effect_mode: str = "packed") -> tuple[relax.VirtualMachine, list[np.ndarray]]:
    model = GPT2(context)
    mod, named_params = model.export_tvm(spec=model.get_default_spec(effect_mode))
    verify(mod)
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(tuple(p.shape)).astype("float32") * 0.3 for _, p in named_params]
    return relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu()), weights


def mask(queries: int, keys: int) -> np.ndarray:
    seen = np.arange(keys)[None] <= np.arange(keys - queries, keys)[:, None]
    return np.where(seen, 0, np.finfo("float32").min).astype("float32")[None, None]


def reference(x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    """The two layers over a whole sequence [n, EMBED], without a cache."""
    n = len(x)
    for qkv, qkv_bias, out, out_bias in (weights[:4], weights[4:]):
        q, k, v = (p.reshape(n, HEADS, HEAD).swapaxes(0, 1) for p in np.split(x @ qkv.T + qkv_bias, 3, axis=-1))
        scores = q @ k.swapaxes(1, 2) / HEAD**0.5
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True)) @ v
        x = x + mixed.swapaxes(0, 1).reshape(n, EMBED) @ out.T + out_bias
    return x


def hidden(count: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, EMBED)).astype("float32")


def run(vm: relax.VirtualMachine, weights: list[np.ndarray], x: np.ndarray, pieces: list[int], effects: Any) -> Any:
    """The results of calls with so many tokens each, after one another, and the caches after them."""
    results, done = [], 0
    for count in pieces:
        part = x[None, done : done + count]
        done += count
        result, effects = vm["prefill"](part, mask(count, done), done, effects, *weights)
        results.append(result.numpy()[0])
    return np.concatenate(results), effects


@pytest.mark.parametrize("pieces", [[7], [1, 1, 1], [4, 1, 1, 3]])
@pytest.mark.parametrize("context", [16, 2])
def test_calls_in_pieces_equal_the_whole_sequence(pieces: list[int], context: int) -> None:
    """A cache that is too short grows."""
    vm, weights = compiled(context)
    x = hidden(sum(pieces))
    got, effects = run(vm, weights, x, pieces, vm["_initialize_effect"]())
    np.testing.assert_allclose(got, reference(x, weights), rtol=2e-4, atol=2e-5)
    assert [c.filled for c in effects] == [sum(pieces)] * 4


def test_caches_are_separate_and_can_be_cleared_and_shortened() -> None:
    vm, weights = compiled()
    x = hidden(6)
    start = vm["_initialize_effect"]()
    first, used = run(vm, weights, x, [6], start)
    again, _ = run(vm, weights, x, [6], vm["_initialize_effect"]())
    np.testing.assert_array_equal(first, again)
    tvm.get_global_func("vm.builtin.attention_kv_cache_array_popn")(used, 2)
    result, used = vm["prefill"](x[None, 4:], mask(2, 6), 6, used, *weights)
    np.testing.assert_allclose(result.numpy()[0], reference(x, weights)[4:], rtol=2e-4, atol=2e-5)
    tvm.get_global_func("vm.builtin.attention_kv_cache_array_clear")(used)
    cleared, _ = run(vm, weights, x, [6], used)
    np.testing.assert_array_equal(cleared, first)
    with pytest.raises(KVStateError, match="popn: got 7; the cache has 6 elements"):
        tvm.get_global_func("vm.builtin.attention_kv_cache_array_popn")(used, 7)


def test_caches_as_arguments_of_their_own() -> None:
    vm, weights = compiled(effect_mode="plain")
    x = hidden(3)
    caches = vm["_initialize_effect"]()
    result, _ = vm["prefill"](x[None], mask(3, 3), 3, *caches, *weights)
    np.testing.assert_allclose(result.numpy()[0], reference(x, weights), rtol=2e-4, atol=2e-5)


def test_a_view_of_another_length_is_refused() -> None:
    vm, weights = compiled()
    caches = vm["_initialize_effect"]()
    with pytest.raises(ValueError, match="kv_cache_view has size 5; expected 3"):
        vm["prefill"](hidden(3)[None], mask(3, 5), 5, caches, *weights)


def test_refusals_say_what_to_write() -> None:
    model = GPT2(4)
    with pytest.raises(SpecError, match="does not take the module's caches") as error:
        model.export_tvm(spec=model.get_default_spec("none"))
    assert "effect_mode" in (error.value.hint or "")
    with pytest.raises(SpecError, match="effect_mode is 'packed'; expected 'none'"):
        model.export(model.get_default_spec())
    with pytest.raises(SpecError, match="effect_mode: got 'other'; expected one of packed, plain, none"):
        model.get_default_spec("other")
    model.to("float16")
    assert model.h[0].k_cache.dtype == "float16" and model.h[1].c_proj.weight.dtype == "float16"
    model.h[0].k_cache.to("float32")
    with pytest.raises(SpecError, match=r"KVCache.append: got float16 .*; expected float32 \[n, 3, 8\]"):
        half = GPT2Attention(4).to("float16")
        half.k_cache.to("float32")
        options = {"param_mode": "plain", "effect_mode": "packed"}
        sizes = {"hidden_states": [1, "n", EMBED], "attention_mask": [1, 1, "n", "m"]}
        inputs = {name: nn.spec.Tensor(shape, "float16") for name, shape in sizes.items()}
        half.export_tvm({"forward": {**inputs, "total_seq_len": int, "$": options}})
