"""Zamba 2: Mamba-2, with shared blocks of attention and MLP before some layers, which have their own LoRA adapters.

Glorioso et al. 2024, "The Zamba2 Suite", section 2. D hidden, R rank of adapters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.attention import SelfAttention
from mlc_compiler.nn.feed_forward import GatedMLP
from mlc_compiler.nn.kv_cache import PagedKVCache
from mlc_compiler.nn.states import RecurrentState
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind, DecoderConfig, LayerKinds
from model_zoo.config_check import unsupported
from model_zoo.mamba2_layers import MAMBA, Mamba2Config, mamba2_rules
from model_zoo.transformer import CausalLM, MixerLayer, Transformer, activation_of, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, LayerNames, renamed

HYBRID = "hybrid"
MAMBA_EPSILON = 1e-5  # of the norms within Mamba-2, independent of rms_norm_eps


@dataclass(frozen=True, kw_only=True)
class Zamba2Config(Mamba2Config, DecoderConfig):
    """num_mem_blocks: shared blocks, which hybrid layers use in turn. adapter_rank: R. use_shared_attention_adapter:
    whether attention has adapters too. use_mem_rope: whether it has RoPE. time_step_min: minimum dt.
    """

    model_type: ClassVar[str] = "zamba2"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "layer_types": ("layers_block_type",),
        "head_dim": ("attention_head_dim",),
        "intermediate_size": ("ffn_hidden_size",),
        "mamba_n_heads": ("n_mamba_heads",),
        "mamba_d_head": ("mamba_headdim",),
        "mamba_n_groups": ("mamba_ngroups",),
        "mamba_proj_bias": ("add_bias_linear",),
    }
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "use_conv_bias": (True,),
        "use_long_context": (None, False),
        "use_shared_mlp_adapter": (True,),
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        "attention_hidden_size chunk_size hybrid_layer_ids kv_channels num_logits_to_keep num_query_groups "
        "time_step_floor time_step_max use_mamba_kernels use_mem_eff_path".split()
    )

    rms_norm_eps: float = 1e-5
    hidden_act: str = "gelu"
    tie_word_embeddings: bool = True
    mamba_n_heads: int = 8
    mamba_d_state: int = 64
    num_mem_blocks: int = 1
    adapter_rank: int = 128
    use_shared_attention_adapter: bool = False
    use_mem_rope: bool = False
    time_step_min: float = 0.001

    def __post_init__(self) -> None:
        self._fill("head_dim", 2 * self.hidden_size // max(self.num_attention_heads, 1))
        object.__setattr__(self, "time_step_limit", (self.time_step_min, float("inf")))
        super().__post_init__()
        if self.num_key_value_heads != self.num_attention_heads:
            raise unsupported("num_key_value_heads", self.num_key_value_heads, str(self.num_attention_heads))

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        attention = AttentionKind(rope=self.rope if self.use_mem_rope else None)
        return {MAMBA: (self.mamba_kind,), HYBRID: (attention, self.mamba_kind)}

    @property
    def hybrid_layers(self) -> list[int]:
        return [i for i, kind in enumerate(self.types) if kind == HYBRID]

    @property
    def blocks(self) -> int:
        """The number of shared blocks that are used."""
        return min(self.num_mem_blocks, len(self.hybrid_layers))


class Adapter(nn.Module):
    """Concatenated low-rank projections of x (LoRA; Hu et al. 2022), [.., size] -> [.., sum(sizes)]."""

    def __init__(self, size: int, rank: int, sizes: Sequence[int]):
        self.down = nn.Linear(size, len(sizes) * rank, bias=False)
        self.up = nn.ModuleList([nn.Linear(rank, out, bias=False) for out in sizes])

    def forward(self, x: Tensor) -> Tensor:
        parts = op.split(self.down(x), len(self.up), axis=-1) if len(self.up) > 1 else (self.down(x),)
        return op.concat([up(part) for up, part in zip(self.up, parts, strict=True)], dim=-1)


class SharedBlock(nn.Module):
    """Attention, then MLP, of x and the embeddings, [B, S, 2 D] -> [B, S, D]; the calling layer adds its adapters."""

    def __init__(self, c: Zamba2Config):
        size, norm, scale = 2 * c.hidden_size, rms_norm(c.rms_norm_eps), (c.head_dim / 2) ** -0.5
        heads = (c.num_attention_heads, c.num_key_value_heads, c.head_dim)
        self.input_layernorm = norm(size)
        self.self_attn = SelfAttention(size, *heads, scale=scale, out_size=c.hidden_size)
        self.pre_ff_layernorm = norm(c.hidden_size)
        activation, bias = activation_of(c.hidden_act), c.mamba_proj_bias
        self.mlp = GatedMLP(c.hidden_size, c.intermediate_size, activation, bias)

    def forward(self, x: Tensor, layer: HybridLayer, cache: PagedKVCache, index: int) -> Tensor:
        x = self.input_layernorm(x)
        added = layer.attention_adapter(x) if layer.attention_adapter else None
        x = self.pre_ff_layernorm(self.self_attn(x, cache, index, added))
        return self.mlp(x, layer.mlp_adapter(x))


class HybridLayer(MixerLayer):
    """A layer of Mamba-2 whose input has the result of a shared block added."""

    def __init__(self, c: Zamba2Config, norm: nn.Module, mixer: nn.Module):
        super().__init__(norm, mixer)
        sizes = [c.num_attention_heads * c.head_dim] * 3
        adapter = Adapter(2 * c.hidden_size, c.adapter_rank, sizes) if c.use_shared_attention_adapter else None
        self.attention_adapter = adapter
        self.mlp_adapter = Adapter(c.hidden_size, c.adapter_rank, [2 * c.intermediate_size])
        self.linear = nn.Linear(c.hidden_size, c.hidden_size, bias=False)

    def with_block(
        self, x: Tensor, first: Tensor, block: SharedBlock, cache: PagedKVCache, index: int, *state: Any
    ) -> Tensor:
        """The layer with the result of ``block`` added to its input. x, first: [B, S, D]; first: the embeddings."""
        shared = block(op.concat([x, first], dim=-1), self, cache, index)
        return x + self.mixer(self.norm(x + self.linear(shared)), *state)


class Zamba2Transformer(Transformer):
    def __init__(self, c: Zamba2Config, *parts: Any):
        super().__init__(c, *parts)
        self.blocks = nn.ModuleList([SharedBlock(c) for _ in range(c.blocks)])

    def forward(self, x: Tensor, states: Sequence[PagedKVCache | RecurrentState]) -> Tensor:
        first, hybrid_layers = x, 0
        for own, layer in zip(self.places, self.layers, strict=True):
            args: list[Any] = [arg for state, index in own for arg in (states[state], index)]
            if isinstance(layer, HybridLayer):
                x = layer.with_block(x, first, self.blocks[hybrid_layers % len(self.blocks)], *args)
                hybrid_layers += 1
            else:
                x = layer(x, *args)
        assert self.norm is not None
        return self.norm(x)


class Zamba2ForCausalLM(CausalLM):
    decoder: ClassVar[type[Transformer]] = Zamba2Transformer


def model(c: Zamba2Config) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)

    def layer(kind: str) -> MixerLayer:
        parts = (norm(c.hidden_size), c.mamba_layer(MAMBA_EPSILON))
        return HybridLayer(c, *parts) if kind == HYBRID else MixerLayer(*parts)

    return Zamba2ForCausalLM(c, [layer(kind) for kind in c.types], norm(c.hidden_size))


IN_MAMBA = ("in_proj", "out_proj", "norm", "dt_bias", "D")
BLOCK = {
    **{name: name for name in ("input_layernorm", "self_attn.o_proj", "pre_ff_layernorm")},
    **{f"mlp.{name}_proj": f"feed_forward.{name}_proj" for name in ("gate_up", "down")},
}


def weights(c: Zamba2Config) -> WeightMap:
    """In checkpoints, a shared block and all its adapters are stored in the first layer that uses it."""
    inner: dict[str, LayerNames] = {
        kind: {"norm": f"{prefix}input_layernorm", **{f"mixer.{n}": f"{prefix}mamba.{n}" for n in IN_MAMBA}}
        for kind, prefix in ((MAMBA, ""), (HYBRID, "mamba_decoder."))
    }
    m = renamed(c, {"model.norm": "model.final_layernorm"}, LAYER, [inner[kind] for kind in c.types])
    mamba2_rules(m, c, "mixer", "mamba")
    mamba2_rules(m, c, "mixer", "mamba_decoder.mamba", (HYBRID,))
    stored = [f"{LAYER.format(index)}.shared_transformer" for index in c.hybrid_layers[: c.blocks]]
    for i, source in enumerate(stored):
        m.concat(f"model.blocks.{i}.self_attn.qkv_proj", [f"{source}.self_attn.{letter}_proj" for letter in "qkv"])
        for ours, theirs in BLOCK.items():
            m.rename(f"model.blocks.{i}.{ours}", f"{source}.{theirs}")
    for i, index in enumerate(c.hybrid_layers):
        _adapter_rules(m, c, LAYER.format(index), stored[i % c.blocks], i)
    return m


def _adapter_rules(m: WeightMap, c: Zamba2Config, layer: str, stored: str, index: int) -> None:
    """Add the adapter rules of one layer. index: its index among hybrid layers."""
    mlp = f"{stored}.feed_forward.gate_up_proj_adapter_list.{index}"
    adapters = {"mlp_adapter": [mlp]}
    if c.use_shared_attention_adapter:
        adapters["attention_adapter"] = [f"{stored}.self_attn.linear_{x}_adapter_list.{index}" for x in "qkv"]
    for name, sources in adapters.items():
        m.concat(f"{layer}.{name}.down", [f"{source}.0" for source in sources])
        for i, source in enumerate(sources):
            m.rename(f"{layer}.{name}.up.{i}", f"{source}.1")


TINY = Zamba2Config(
    **{**tiny.SIZES, "num_key_value_heads": 4, "num_hidden_layers": 3, "head_dim": 50},
    mamba_n_heads=5,
    mamba_d_state=12,
    layer_types=(MAMBA, HYBRID, HYBRID),
    num_mem_blocks=2,
    adapter_rank=12,
    use_shared_attention_adapter=True,
    use_mem_rope=True,
)
ARCHITECTURE = Architecture("zamba2", Zamba2Config, model, weights, tiny=TINY)
