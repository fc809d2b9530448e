"""RWKV-5, 6 and 7 token by token, written from the papers, with the names of published checkpoints.

Peng et al. 2024, "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence"; Peng et al. 2025, "RWKV-7
Goose with Expressive Dynamic State Evolution".
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


def before(x: torch.Tensor) -> torch.Tensor:
    """Shift x [S, D] by one token; the first row is 0."""
    return F.pad(x, (0, 0, 1, -1))


def share(size: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(1, 1, size))


def product(size: int, out: int) -> nn.Linear:
    return nn.Linear(size, out, bias=False)


def by_head(c: Any, *rows: torch.Tensor) -> list[torch.Tensor]:
    return [x.view(len(x), -1, c.head_size) for x in rows]


class GatedAttention(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.c = c
        for name in ("receptance", "key", "value", "gate", "output"):
            setattr(self, name, product(c.hidden_size, c.hidden_size))
        heads = c.hidden_size // c.head_size
        self.time_faaaa = nn.Parameter(torch.zeros(heads, c.head_size))
        self.ln_x = nn.GroupNorm(heads, c.hidden_size, eps=64e-5)

    def mixed(self, r: Any, k: Any, v: Any, g: Any, decay: torch.Tensor) -> torch.Tensor:
        """decay: [S, H, N] or [H, N]"""
        r, k, v = by_head(self.c, self.receptance(r), self.key(k), self.value(v))
        decay, state, out = decay.expand_as(r), torch.zeros(*r.shape[1:], r.shape[2]), []
        for t in range(len(r)):
            added = k[t, :, :, None] * v[t, :, None, :]
            out.append((r[t, :, :, None] * (state + self.time_faaaa[:, :, None] * added)).sum(1))
            state = decay[t, :, :, None] * state + added
        return self.output(self.ln_x(torch.stack(out).flatten(1)) * F.silu(self.gate(g)))


class Attention5(GatedAttention):
    def __init__(self, c: Any):
        super().__init__(c)
        self.time_decay = nn.Parameter(torch.zeros_like(self.time_faaaa))
        for name in ("receptance", "key", "value", "gate"):
            setattr(self, f"time_mix_{name}", share(c.hidden_size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = [self.time_mix_receptance, self.time_mix_key, self.time_mix_value, self.time_mix_gate]
        inputs = [x * s[0, 0] + before(x) * (1 - s[0, 0]) for s in shares]
        return self.mixed(*inputs, torch.exp(-torch.exp(self.time_decay)))


class Attention6(GatedAttention):
    def __init__(self, c: Any):
        super().__init__(c)
        mix, decay = c.time_mix_extra_dim, c.time_decay_extra_dim
        for name in "xwkvrg":
            setattr(self, f"time_maa_{name}", share(c.hidden_size))
        self.time_maa_w1 = nn.Parameter(torch.zeros(c.hidden_size, 5 * mix))
        self.time_maa_w2 = nn.Parameter(torch.zeros(5, mix, c.hidden_size))
        self.time_decay = share(c.hidden_size)
        self.time_decay_w1 = nn.Parameter(torch.zeros(c.hidden_size, decay))
        self.time_decay_w2 = nn.Parameter(torch.zeros(decay, c.hidden_size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        change = before(x) - x
        low = torch.tanh((x + change * self.time_maa_x[0, 0]) @ self.time_maa_w1).chunk(5, -1)
        w, k, v, r, g = (
            x + change * (getattr(self, f"time_maa_{name}")[0, 0] + part @ matrix)
            for name, part, matrix in zip("wkvrg", low, self.time_maa_w2, strict=True)
        )
        decay = self.time_decay[0, 0] + torch.tanh(w @ self.time_decay_w1) @ self.time_decay_w2
        return self.mixed(r, k, v, g, by_head(self.c, torch.exp(-torch.exp(decay)))[0])


class GatedFeedForward(nn.Module):
    def __init__(self, c: Any, names: tuple[str, str]):
        super().__init__()
        self.names = names
        for name in names:
            setattr(self, name, share(c.hidden_size))
        self.key, self.value = product(c.hidden_size, c.intermediate_size), product(c.intermediate_size, c.hidden_size)
        self.receptance = product(c.hidden_size, c.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = [getattr(self, name)[0, 0] for name in self.names]
        own = self.names[0] == "time_mix_key"
        k, r = (x * s + before(x) * (1 - s) if own else x + (before(x) - x) * s for s in shares)
        return torch.sigmoid(self.receptance(r)) * self.value(F.relu(self.key(k)) ** 2)


class Block(nn.Module):
    def __init__(self, c: Any, index: int):
        super().__init__()
        is_5 = c.model_type == "rwkv5"
        if not index:
            self.pre_ln = nn.LayerNorm(c.hidden_size)
        self.ln1, self.ln2 = nn.LayerNorm(c.hidden_size), nn.LayerNorm(c.hidden_size)
        self.attention = Attention5(c) if is_5 else Attention6(c)
        names = ("time_mix_key", "time_mix_receptance") if is_5 else ("time_maa_k", "time_maa_r")
        self.feed_forward = GatedFeedForward(c, names)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pre_ln(x) if hasattr(self, "pre_ln") else x
        x = x + self.attention(self.ln1(x))
        return x + self.feed_forward(self.ln2(x))


class LowRank(nn.Module):
    def __init__(self, size: int, rank: int, activation: nn.Module, bias: bool = True):
        super().__init__()
        self.lora = nn.Sequential(product(size, rank), activation, nn.Linear(rank, size, bias=bias))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lora(x)


class Attention7(nn.Module):
    def __init__(self, c: Any, index: int):
        super().__init__()
        self.c, size = c, c.hidden_size
        for name in "rwkvag":
            setattr(self, f"x_{name}", share(size))
        self.k_k, self.k_a = nn.Parameter(torch.zeros(size)), nn.Parameter(torch.zeros(size))
        self.r_k = nn.Parameter(torch.zeros(size // c.head_dim, c.head_dim))
        self.r_proj, self.k_proj, self.v_proj, self.o_proj = (product(size, size) for _ in range(4))
        self.w_lora = LowRank(size, c.decay_low_rank_dim, nn.Tanh())
        self.a_lora = LowRank(size, c.a_low_rank_dim, nn.Identity())
        self.g_lora = LowRank(size, c.gate_low_rank_dim, nn.Sigmoid(), bias=False)
        if index:
            self.v_lora = LowRank(size, c.v_low_rank_dim, nn.Identity())
        self.g_norm = nn.GroupNorm(size // c.head_dim, size, eps=c.norm_eps * c.head_dim)

    def forward(self, x: torch.Tensor, first: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        change = before(x) - x
        xr, xw, xk, xv, xa, xg = (x + change * getattr(self, f"x_{name}")[0, 0] for name in "rwkvag")
        r, k, v = self.r_proj(xr), self.k_proj(xk), self.v_proj(xv)
        if first is None:
            first = v
        else:
            v = torch.lerp(v, first, torch.sigmoid(self.v_lora(xv)))
        a = torch.sigmoid(self.a_lora(xa))
        decay = torch.exp(-0.6065306597126334 * torch.sigmoid(self.w_lora(xw)))
        removed = F.normalize((k * self.k_k).view(len(k), -1, self.c.head_dim), dim=-1)
        k = k * (1 + (a - 1) * self.k_a)
        r, k, v, a, decay = (y.view(len(y), -1, self.c.head_dim) for y in (r, k, v, a, decay))
        state, out = torch.zeros(*r.shape[1:], r.shape[2]), []
        for t in range(len(r)):  # rows of values, columns of keys, as in the paper
            change_of_keys = torch.diag_embed(decay[t]) - removed[t, :, :, None] * (removed[t] * a[t])[:, None, :]
            state = state @ change_of_keys + v[t, :, :, None] * k[t, :, None, :]
            out.append((state @ r[t, :, :, None])[..., 0])
        y = self.g_norm(torch.stack(out).flatten(1)) + ((r * k * self.r_k).sum(-1, keepdim=True) * v).flatten(1)
        return self.o_proj(y * self.g_lora(xg)), first


class FeedForward7(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.x_k = nn.Parameter(torch.zeros(c.hidden_size))
        self.key, self.value = product(c.hidden_size, c.intermediate_size), product(c.intermediate_size, c.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.value(F.relu(self.key(x + (before(x) - x) * self.x_k)) ** 2)


class Layer7(nn.Module):
    def __init__(self, c: Any, index: int):
        super().__init__()
        if not index:
            self.pre_norm = nn.LayerNorm(c.hidden_size)
        self.attn_norm, self.ffn_norm = nn.LayerNorm(c.hidden_size), nn.LayerNorm(c.hidden_size)
        self.attn, self.ffn = Attention7(c, index), FeedForward7(c)

    def forward(self, x: torch.Tensor, first: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.pre_norm(x) if first is None else x
        mixed, first = self.attn(self.attn_norm(x), first)
        x = x + mixed
        return x + self.ffn(self.ffn_norm(x)), first


class Rwkv5Config(PretrainedConfig):
    model_type = "rwkv5"


class Rwkv6Config(PretrainedConfig):
    model_type = "rwkv6"


class Rwkv7Config(PretrainedConfig):
    model_type = "rwkv7"


class _Reference(PreTrainedModel):
    def __init__(self, config: PretrainedConfig):
        super().__init__(config)
        self.build(config)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """The tests fill all weights."""


class Rwkv(_Reference):
    """RWKV-5 or 6."""

    config_class = PretrainedConfig

    def build(self, c: Any) -> None:
        self.rwkv = nn.Module()
        self.rwkv.embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
        self.rwkv.blocks = nn.ModuleList([Block(c, i) for i in range(c.num_hidden_layers)])
        self.rwkv.ln_out = nn.LayerNorm(c.hidden_size)
        self.head = product(c.hidden_size, c.vocab_size)

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> CausalLMOutput:
        x = self.rwkv.embeddings(input_ids[0])
        for block in self.rwkv.blocks:
            x = block(x)
        return CausalLMOutput(logits=self.head(self.rwkv.ln_out(x))[None])


class Rwkv5(Rwkv):
    config_class = Rwkv5Config


class Rwkv6(Rwkv):
    config_class = Rwkv6Config


class Rwkv7(_Reference):
    config_class = Rwkv7Config

    def build(self, c: Any) -> None:
        self.model = nn.Module()
        self.model.embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
        self.model.layers = nn.ModuleList([Layer7(c, i) for i in range(c.num_hidden_layers)])
        self.model.norm = nn.LayerNorm(c.hidden_size)
        self.lm_head = product(c.hidden_size, c.vocab_size)

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> CausalLMOutput:
        x, first = self.model.embeddings(input_ids[0]), None
        for layer in self.model.layers:
            x, first = layer(x, first)
        return CausalLMOutput(logits=self.lm_head(self.model.norm(x))[None])


for reference in (Rwkv5, Rwkv6, Rwkv7):
    AutoConfig.register(reference.config_class.model_type, reference.config_class)
    AutoModelForCausalLM.register(reference.config_class, reference)
