"""Multi-token prediction in torch, after DeepSeek-AI 2024 (arXiv 2412.19437), equations 21 to 23, and its checkpoints.

The layer is the one of a model of transformers with a single layer, of the kind that published checkpoints have.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file

from tests.model_zoo.architecture_cases import CASES, Case
from tests.model_zoo.compiled import random_model, randomized, save

OF_A_LAYER = {
    "num_hidden_layers": 1,
    "first_k_dense_replace": 0,
    "mlp_layer_types": ["sparse"],
    "layer_types": ["full_attention"],
}
"""What a configuration has instead, where it has the key."""
OF_MIMO_V2 = {**OF_A_LAYER, "mlp_layer_types": ["dense"], "layer_types": ["sliding_attention"]}
OF_ERNIE = {"num_hidden_layers": 1, "mlp_layer_types": ["dense"], "moe_layer_start_index": 1}


@dataclass(frozen=True)
class Names:
    """Of the tensors of a family's checkpoints whose model has two layers; around the layer: after the root.

    config: of the layer, as ``OF_A_LAYER``. is_before_norm: whether the layer takes hidden states before the last norm.
    """

    root: str
    layer: str
    embedding_norm: str
    hidden_norm: str
    projection: str
    norm: str
    is_hidden_first: bool = False
    is_before_norm: bool = False
    feed_forward_norm: str = "post_attention_layernorm"
    config: Mapping[str, Any] = field(default_factory=lambda: OF_A_LAYER)


DEEPSEEK = Names("model.layers.2", "model.layers.2", "enorm", "hnorm", "eh_proj", "shared_head.norm")
BAILING = Names("model.layers.2", "model.layers.2", "enorm", "hnorm", "eh_proj", "final_layernorm")
QWEN = Names("mtp", "mtp.layers.0", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
MIMO_ROOT = "model.mtp_layers.0"
MIMO = Names(MIMO_ROOT, MIMO_ROOT, "token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm", True)
MIMO_V2_ROOT = "model.mtp.layers.0"
MIMO_V2 = Names(
    MIMO_V2_ROOT,
    MIMO_V2_ROOT,
    "enorm",
    "hnorm",
    "eh_proj",
    "final_layernorm",
    is_before_norm=True,
    feed_forward_norm="pre_mlp_layernorm",
    config=OF_MIMO_V2,
)
ERNIE = Names(
    "model",
    "model.mtp_block.0",
    "mtp_emb_norm.0",
    "mtp_hidden_norm.0",
    "mtp_linear_proj.0",
    "norm",
    config=OF_ERNIE,
)
NAMES = {
    "deepseek_v3": DEEPSEEK,
    "glm4_moe": DEEPSEEK,
    "glm4_moe_lite": DEEPSEEK,
    "bailing_moe_v2": BAILING,
    "qwen3_next": QWEN,
    "qwen3_5_text": QWEN,
    "qwen3_5": QWEN,
    "qwen3_5_moe_text": QWEN,
    "qwen3_5_moe": QWEN,
    "mimo": MIMO,
    "mimo_v2_flash": MIMO_V2,
    "ernie4_5_moe": ERNIE,
}
"""By the architecture of the model."""


class Reference:
    """A model with random weights, and the layer that predicts the token after the next one."""

    def __init__(self, name: str):
        self.case: Case = next(case for case in CASES if case.name == name)
        self.names = NAMES[name]
        self.model: Any = random_model(self.case)
        self.config = deepcopy(self.model.config.get_text_config())
        for key, value in self.names.config.items():
            if getattr(self.config, key, None) is not None:
                setattr(self.config, key, value)
        layer = transformers.AutoModelForCausalLM.from_config(self.config, attn_implementation="eager")
        self.layer = randomized(layer, self.case)
        if self.names is ERNIE:
            self.layer.base_model.norm = self.model.base_model.norm
        size = self.config.hidden_size
        center = 0.0 if self.case.norms_around_zero else 1.0
        self.embedding_norm, self.hidden_norm = (torch.randn(size) * 0.3 + center for _ in range(2))
        self.projection = torch.randn(size, 2 * size) * 0.2

    def states(self, ids: list[int]) -> torch.Tensor:
        """The model's last hidden states, as the layer takes them, [n, D]."""
        return self._outputs(self.model, input_ids=torch.tensor([ids]))[1]

    def as_given(self, states: torch.Tensor) -> torch.Tensor:
        """Of such states, those that the compiled model returns."""
        with torch.no_grad():
            return self.model.base_model.norm(states) if self.names.is_before_norm else states

    def embed(self, ids: list[int]) -> torch.Tensor:
        """[n, D]"""
        with torch.no_grad():
            return self.model.get_input_embeddings()(torch.tensor(ids))

    def fuse(self, ids: list[int], states: torch.Tensor) -> torch.Tensor:
        """Equation 21, of tokens and the states before them; [n, D]."""
        parts = [self._norm(self.embed(ids), self.embedding_norm), self._norm(states, self.hidden_norm)]
        return torch.cat(parts[::-1] if self.names.is_hidden_first else parts, dim=-1) @ self.projection.T

    def hidden(self, ids: list[int], states: torch.Tensor) -> torch.Tensor:
        """Equation 22, and the last norm; [n, D]."""
        return self._outputs(self.layer, inputs_embeds=self.fuse(ids, states)[None])[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Equation 23, with the model's own head."""
        with torch.no_grad():
            return self.model.get_output_embeddings()(hidden)

    def guesses(self, ids: list[int], count: int) -> list[int]:
        """The most likely tokens after ``ids``, of which the model has seen all but the last."""
        states, text = self.states(ids[:-1]), list(ids)
        for _ in range(count):
            hidden, new = self._outputs(self.layer, inputs_embeds=self.fuse(text[1:], states)[None])
            text.append(int(self.logits(hidden[-1:]).argmax()))
            states = torch.cat([states, new[-1:]])
        return text[len(ids) :]

    def checkpoint(self, folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """config.json and tensors of both, by way of files in ``folder``."""
        save(self.case, self.model, folder / "model")
        save(self.case, self.layer, folder / "layer")
        config = transformers.PretrainedConfig.get_config_dict(folder / "model")[0]
        names = self.names
        tensors = load_file(folder / "model" / "model.safetensors") | {
            f"{names.root}.{names.embedding_norm}.weight": self.embedding_norm,
            f"{names.root}.{names.hidden_norm}.weight": self.hidden_norm,
            f"{names.root}.{names.projection}.weight": self.projection,
        }
        for name, tensor in load_file(folder / "layer" / "model.safetensors").items():
            if name.startswith("model.layers.0."):
                own = name.removeprefix("model.layers.0").replace("post_attention_layernorm", names.feed_forward_norm)
                tensors[names.layer + own] = tensor
            elif name == "model.norm.weight":
                tensors[f"{names.root}.{names.norm}.weight"] = tensor
        if names is DEEPSEEK:
            tensors[f"{names.root}.embed_tokens.weight"] = self.model.get_input_embeddings().weight
            tensors[f"{names.root}.shared_head.head.weight"] = self.model.get_output_embeddings().weight
            config["num_nextn_predict_layers"] = 1
        return config, tensors

    def _outputs(self, model: Any, **inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The last hidden states, and those that the layer takes, [n, D]."""
        before: list[torch.Tensor] = []
        with ExitStack() as hooks, torch.no_grad():
            if self.names.is_before_norm:
                hook = model.base_model.norm.register_forward_pre_hook(lambda _, taken: before.append(taken[0]))
                hooks.callback(hook.remove)
            (hidden,) = model.base_model(**inputs, use_cache=False).last_hidden_state
        return hidden, before[0][0] if before else hidden

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        scale = 1.0 + weight if self.case.norms_around_zero else weight
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps) * scale
