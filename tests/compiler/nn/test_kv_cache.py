import ml_dtypes
import numpy as np
import pytest

from mlc_compiler import nn
from mlc_compiler.interp import run_function
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.nn import spec
from mlc_compiler.nn.kv_cache import KVCacheConfig, RopeMode
from mlc_compiler.nn.states import inputs as inputs_of
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.script import parse, script
from mlc_errors import MLCError

HEADS, KV_HEADS, DIM, LAYERS, PAGES = 4, 2, 6, 2, 9
INV_FREQ = np.array([1.0, 0.2], np.float32)  # the last two of the six elements are not rotated


def attend_in_layer_1(qkv, caches):
    (cache,) = caches
    return cache.attention_with_fused_qkv(1, qkv, HEADS)


def functions(attend, config):
    """The exported functions ``main(qkv, cache…)``."""
    inputs = {"qkv": spec.Tensor(["n", HEADS + 2 * KV_HEADS, DIM]), "cache": inputs_of([config], "n")}
    return spec.ModuleSpec({"main": spec.Function(attend, inputs, "none")})


def attention_module(config):
    mod, _ = nn.Module().export(functions(attend_in_layer_1, config))
    assert first_difference(parse(script(mod)), mod) is None
    return mod


def config(mode=RopeMode.NORMAL, dtype="float32", **options):
    inv_freq = None if mode is RopeMode.NONE else INV_FREQ
    return KVCacheConfig(LAYERS, HEADS, KV_HEADS, DIM, dtype, mode, inv_freq, **options)


class Cache:
    """A KV cache whose pages are initialized to NaN, and the keys and values of the reference."""

    def __init__(self, config):
        self.config = config
        self.mod = attention_module(config)
        pages, dtype = (LAYERS, PAGES, KV_HEADS), getattr(ml_dtypes, config.dtype, config.dtype)
        nothing = 99 if dtype == "int8" else np.nan
        self.k = np.full((*pages, DIM, 16), nothing, dtype)
        self.v = np.full((*pages, 16, DIM), nothing, dtype)
        self.scales = [np.full((*pages, 16), np.nan, config.scale_dtype) for _ in "kv" if config.scale_dtype]
        self.table = np.array([[7, 2, 5], [3, 0, 8]], np.int32)
        self.seen = [[], []]

    def __call__(self, qkv, seq, pos):
        arrays = [self.table, np.asarray(seq, np.int32), np.asarray(pos, np.int32)]
        return run_function(self.mod, "main", qkv, self.k, self.v, *self.scales, *arrays)

    def reference(self, qkv, seq, pos):
        for token, s in zip(qkv, seq):
            self.seen[s].append(token)
        return np.stack([self._attend(token, self.seen[s], p) for token, s, p in zip(qkv, seq, pos)])

    def _attend(self, token, sequence, pos):
        first = max(0, pos - self.config.sliding_window + 1) if self.config.sliding_window else 0
        rotate = self.config.rope_mode is not RopeMode.NONE
        out = np.zeros((HEADS, DIM))
        for h in range(HEADS):
            g = h // (HEADS // KV_HEADS)
            q = self._rotated(token[h], pos) if rotate else token[h]
            keys = [sequence[p][HEADS + g] for p in range(first, pos + 1)]
            keys = np.stack([self._rotated(k, first + i) if rotate else k for i, k in enumerate(keys)])
            scores = keys @ q / np.sqrt(DIM)
            weights = np.exp(scores - scores.max())
            values = np.stack([sequence[p][HEADS + KV_HEADS + g] for p in range(first, pos + 1)])
            out[h] = weights / weights.sum() @ values
        return out

    def _rotated(self, x, pos):
        angle = pos * INV_FREQ.astype(np.float64)
        a, b = x[:2].astype(np.float64), x[2:4].astype(np.float64)
        cos, sin = np.cos(angle) * self.config.attention_factor, np.sin(angle) * self.config.attention_factor
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[4:]])


def check(cache, rng, seq, pos, tolerance=2e-5):
    qkv = rng.standard_normal((len(seq), HEADS + 2 * KV_HEADS, DIM)).astype(np.float32)
    got = cache(qkv, seq, pos)
    np.testing.assert_allclose(got, cache.reference(qkv, seq, pos), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mode", list(RopeMode))
def test_prefill_then_decode_of_two_sequences(mode):
    rng = np.random.default_rng(1)
    cache = Cache(config(mode, attention_factor=1.25))
    check(cache, rng, [0] * 18, range(18))
    check(cache, rng, [1] * 3 + [0], [0, 1, 2, 18])
    check(cache, rng, [1, 0], [3, 19])


@pytest.mark.parametrize("mode", [RopeMode.NORMAL, RopeMode.INLINE])
@pytest.mark.parametrize("window", [1, 5, 17])
def test_sliding_window(mode, window):
    cache = Cache(config(mode, sliding_window=window))
    check(cache, np.random.default_rng(2), [0] * 37, range(37))


def test_float16_pages():
    cache = Cache(config(dtype="float16"))
    check(cache, np.random.default_rng(3), [1] * 17, range(17), tolerance=4e-3)


@pytest.mark.parametrize("mode", list(RopeMode))
def test_codes_with_scales(mode):
    """An element differs from its code by half a scale, at most 1/254 of the largest of its vector."""
    cache = Cache(config(mode, "int8"))
    check(cache, np.random.default_rng(3), [1] * 17, range(17), tolerance=3e-2)
    assert all(np.isfinite(scales[1, 3]).all() and np.isnan(scales[0]).all() for scales in cache.scales)


def test_float8_pages():
    cache = Cache(config(dtype="float8_e4m3fn"))
    check(cache, np.random.default_rng(3), [1] * 17, range(17), tolerance=0.2)


@pytest.mark.parametrize(("dtype", "of_a_token"), [("float16", 96), ("int8", 64), ("float8_e4m3fn", 48)])
def test_bytes_of_a_token(dtype, of_a_token):
    assert config(dtype=dtype).bytes_per_token == of_a_token
    assert config(dtype=dtype).describe().get("scale_dtype") == ("float16" if dtype == "int8" else None)


def test_dtypes_that_a_cache_cannot_have():
    with pytest.raises(MLCError, match="dtype of a KV cache is 'int4'; expected one of float16, float32"):
        config(dtype="int4")
    for dtype in ("int8", "float8_e4m3fn"):
        with pytest.raises(
            MLCError, match=f"of latent attention is '{dtype}'; expected one of float16, float32, bfloa"
        ):
            KVCacheConfig(1, 4, 1, 6, dtype, latent=True)


def test_other_layers_and_pages_are_unchanged():
    cache = Cache(config())
    qkv = np.ones((3, HEADS + 2 * KV_HEADS, DIM), np.float32)
    cache(qkv, [1, 1, 1], [15, 16, 17])
    written = np.zeros_like(cache.v, bool)
    written[1, 3, :, 15:] = written[1, 0, :, :2] = True
    assert np.array_equal(~np.isnan(cache.v), written)
    assert np.array_equal(~np.isnan(cache.k), written.swapaxes(-1, -2))


def test_keys_are_stored_unrotated_inline():
    cache = Cache(config(RopeMode.INLINE))
    qkv = np.random.default_rng(4).standard_normal((1, HEADS + 2 * KV_HEADS, DIM)).astype(np.float32)
    cache(qkv, [0], [1])
    assert np.array_equal(cache.k[1, 7, :, :, 1], qkv[0, HEADS : HEADS + KV_HEADS])


def test_layers_share_their_tensor_functions():
    def attend(qkv, caches):
        (cache,) = caches
        return cache.attention_with_fused_qkv(0, qkv, HEADS) + cache.attention_with_fused_qkv(1, qkv, HEADS)

    mod, _ = nn.Module().export(functions(attend, config()))
    assert list(Legalize().run(mod)) == ["rope", "main", "append", "paged_attention", "add"]
    assert not mod["main"].is_pure


def test_inconsistent_sizes():
    with pytest.raises(MLCError, match="got 4 heads over 3; expected a divisor"):
        KVCacheConfig(1, 4, 3, 6)
    with pytest.raises(MLCError, match="got 2 pairs; expected at most 1"):
        KVCacheConfig(1, 2, 1, 2, rope_mode=RopeMode.NORMAL, inv_freq=INV_FREQ)


@pytest.mark.parametrize("wild", [1 << 28, -(1 << 28), (1 << 31) - 1, -(1 << 31)])
def test_compiled_modules_accept_any_token_places(wild):
    model = nn.Module().jit(functions(attend_in_layer_1, config()))
    qkv = np.ones((3, HEADS + 2 * KV_HEADS, DIM), np.float32)
    k = np.zeros((LAYERS, PAGES, KV_HEADS, DIM, 16), np.float32)
    v = np.zeros((LAYERS, PAGES, KV_HEADS, 16, DIM), np.float32)
    places = [np.array([[1, 2]], np.int32), np.zeros(3, np.int32), np.arange(3, dtype=np.int32)]
    for changed in range(3):
        given = [np.full_like(a, wild) if i == changed else a for i, a in enumerate(places)]
        assert np.isfinite(model["main"](qkv, k, v, *given)).all()
        assert not k.any() and not v.any()
