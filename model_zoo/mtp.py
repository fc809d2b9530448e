"""Multi-token prediction (MTP): a checkpoint's own draft head, one more layer of its model (DeepSeek-AI 2024, 2.2).

The layer takes ``M [norm(e); norm(h)]``, of a token's embedding e and the hidden state h before it, and ends with a
norm; hidden states are what the output head takes. Embeddings and logits are those of the model that it drafts for.
MiMo-V2 takes h before the last norm, ``RescaledLayer``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.kv_cache import PagedKVCache
from mlc_compiler.nn.states import State
from model_zoo import decoder, draft_layers
from model_zoo.architecture import Architecture
from model_zoo.hybrid import FULL
from model_zoo.layer_types import SLIDING
from model_zoo.routed import DENSE
from model_zoo.weight_map import Rule, WeightMap
from model_zoo.weight_rules import LAYER

FIRST, NORM = f"{LAYER.format(0)}.", "model.norm"


@dataclass(frozen=True)
class Form:
    """Where checkpoints have the layer, and what its configuration has instead of the model's.

    root: prefix of its tensors; {} is the number of the model's layers. layer: prefix of attention and feed-forward
    part, after the root. embedding_norm, hidden_norm, projection, norm, feed_forward_norm: names after the root.
    hidden_first: h is before e in what the projection takes. before_norm: h is taken before the last norm. own:
    patterns of the layer's tensors, after the root; norm may be one of the model's. shared: tensors that repeat the
    model's. sizes: fields of the configuration; those that it does not have are left out.
    """

    root: str
    layer: str = ""
    embedding_norm: str = "enorm"
    hidden_norm: str = "hnorm"
    projection: str = "eh_proj"
    norm: str = "shared_head.norm"
    feed_forward_norm: str | None = None
    hidden_first: bool = False
    before_norm: bool = False
    own: tuple[str, ...] = ("*",)
    shared: tuple[str, ...] = ()
    sizes: Mapping[str, Any] = field(default_factory=dict)

    def config(self, c: Any) -> Any:
        """The configuration of a decoder that has this layer alone."""
        known = {f.name for f in fields(c)}
        return replace(c, num_hidden_layers=1, **{k: value for k, value in self.sizes.items() if k in known})


SPARSE = {"first_k_dense_replace": 0, "moe_layer_freq": 1, "mlp_layer_types": None}
"""A layer with experts."""

DEEPSEEK = Form("model.layers.{}", shared=("embed_tokens", "shared_head.head"), sizes=SPARSE)
BAILING = replace(DEEPSEEK, norm="final_layernorm", shared=())
QWEN = Form(
    "mtp",
    "layers.0",
    embedding_norm="pre_fc_norm_embedding",
    hidden_norm="pre_fc_norm_hidden",
    projection="fc",
    norm="norm",
    sizes={"layer_types": (FULL,), "vision_config": None},
)
MIMO = Form(
    "model.mtp_layers.0",
    embedding_norm="token_layernorm",
    hidden_norm="hidden_layernorm",
    projection="input_proj",
    norm="final_layernorm",
    hidden_first=True,
)
MIMO_V2 = Form(
    "model.mtp.layers.0",
    norm="final_layernorm",
    feed_forward_norm="pre_mlp_layernorm",
    before_norm=True,
    sizes={"layer_types": (SLIDING,), "mlp_layer_types": (DENSE,), "first_k_dense_replace": None},
)
ERNIE = Form(
    "model",
    "mtp_block.0",
    embedding_norm="mtp_emb_norm.0",
    hidden_norm="mtp_hidden_norm.0",
    projection="mtp_linear_proj.0",
    norm="norm",
    own=("mtp_*", "norm.*"),
    sizes={"first_k_dense_replace": 1},
)


class PredictionLayer(nn.Module):
    """c, model: of a decoder that has the layer alone."""

    def __init__(self, c: Any, form: Form, model: Any):
        self.hidden_first = form.hidden_first
        self.embedding_norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.hidden_norm = None if form.before_norm else nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.projection = nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False)
        (self.layer,) = model.model.layers
        self.norm = model.model.norm

    def fuse(self, input_embed: Tensor, hidden_states: Tensor) -> Tensor:
        """[S, D] each -> [S, D]"""
        assert self.hidden_norm is not None
        return self._joined(input_embed, self.hidden_norm(hidden_states))

    def forward(self, x_BSD: Tensor, cache: PagedKVCache) -> Tensor:
        return self.norm(self.layer(x_BSD, cache, 0))

    def _joined(self, input_embed: Tensor, hidden: Tensor) -> Tensor:
        parts = [self.embedding_norm(input_embed), hidden]
        return self.projection(op.concat(parts[::-1] if self.hidden_first else parts, dim=-1))


class RescaledLayer(PredictionLayer):
    """A layer that takes h before the last norm, where the model gives ``x = w h / rms(h)``.

    The layer's own norm of h has weights v: it is ``x v / w``. The quotients for states of the model and of this layer,
    which follow each a guess, are two parameters.
    """

    def __init__(self, c: Any, form: Form, model: Any):
        super().__init__(c, form, model)
        self.hidden_scale, self.own_hidden_scale = (nn.Parameter((c.hidden_size,)) for _ in range(2))

    def fuse(self, input_embed: Tensor, hidden_states: Tensor) -> Tensor:
        return self._joined(input_embed, hidden_states * self.hidden_scale)

    def fuse_own(self, input_embed: Tensor, hidden_states: Tensor) -> Tensor:
        """Like ``fuse``, for hidden states that this layer returned."""
        return self._joined(input_embed, hidden_states * self.own_hidden_scale)


def head(base: Architecture, form: Form) -> Architecture:
    """The head of an architecture's checkpoints, named after it. Its configuration is the model's own."""
    name = f"{base.name}_mtp"
    config: type[Any] = type(f"{base.config.__name__}MTP", (base.config,), {"model_type": name})

    def states(c: Any, kv_dtype: str) -> Sequence[State]:
        return decoder.states(form.config(c), kv_dtype)

    def model(c: Any) -> PredictionLayer:
        kind = RescaledLayer if form.before_norm else PredictionLayer
        return kind(c, form, base.model(form.config(c)))

    return Architecture(
        name,
        config,
        model,
        lambda c: weights(base.weights(form.config(c)), form, c.num_hidden_layers),
        tiny=config(**{f.name: getattr(base.tiny, f.name) for f in fields(config) if f.init}),
        states=states,
        entry_points=draft_layers.entry_points,
        quantization=base.quantization,
    )


def weights(of_layer: WeightMap, form: Form, layers: int) -> WeightMap:
    """of_layer: the map of a decoder that has the layer alone; layers: of the model.

    The norms before the projection are stored as the last one is.
    """
    root = form.root.format(layers)
    stem = f"{root}.{form.layer}" if form.layer else root
    around = {"embedding_norm": form.embedding_norm, "norm": form.norm}
    if not form.before_norm:
        around["hidden_norm"] = form.hidden_norm

    def renamed(rule: Rule, old: str, ours: str, theirs: str) -> Rule:
        value = rule.value.map_names(lambda name: theirs + name.removeprefix(old))
        return Rule(tuple(ours + target.removeprefix(old) for target in rule.targets), value, rule.axis)

    m = WeightMap()
    for ours, theirs in {**around, "projection": form.projection}.items():
        m.other_prefix(f"{ours}.", f"{root}.{theirs}.")
    m.other_prefix("layer.", f"{stem}.")
    for pattern in form.own:
        m.only(f"{root}.{pattern}")
    if form.feed_forward_norm:
        m.rename("layer.post_attention_layernorm", f"{stem}.{form.feed_forward_norm}")
    if form.before_norm:
        m.only(f"{NORM}.*")
        v, w, own_w = (f"{name}.weight" for name in (f"{root}.{form.hidden_norm}", NORM, f"{root}.{form.norm}"))
        m.computed("hidden_scale", [v, w], quotient)
        m.computed("own_hidden_scale", [v, own_w], quotient)
    for rule in of_layer.rules:
        if rule.targets[0].startswith(FIRST):
            m.rules.append(renamed(rule, FIRST, "layer.", f"{stem}."))
        elif rule.targets[0].startswith(NORM):
            m.rules += (renamed(rule, NORM, ours, f"{root}.{theirs}") for ours, theirs in around.items())
    for pattern in of_layer.unused_patterns:
        if pattern.startswith(FIRST):
            m.unused(f"{stem}.{pattern.removeprefix(FIRST)}")
    for name in form.shared:
        m.unused(f"{root}.{name}.*")
    return m


def quotient(v: np.ndarray, w: np.ndarray) -> np.ndarray:
    """``v / w`` in float32; 0 where w is 0, which removes an element of a hidden state."""
    v, w = v.astype(np.float32), w.astype(np.float32)
    return np.divide(v, w, out=np.zeros_like(v), where=w != 0)
