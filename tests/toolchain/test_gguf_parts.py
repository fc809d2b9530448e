"""GGUF files of encoder-decoders (T5) and of models with stacked matrices (Gemma 3n)."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from mlc_toolchain.imatrix import read_imatrix
from model_zoo import registry
from model_zoo.weight_expr import as_expr
from model_zoo.weight_map import Production
from tests.toolchain.gguf_forms import Form, Tensors, parameters_of_both
from tests.toolchain.test_calibration import write_legacy

T5: dict[str, Any] = {
    "context_length": 64,
    "embedding_length": 60,
    "feed_forward_length": 52,
    "block_count": 2,
    "decoder_block_count": 3,
    "attention.head_count": 6,
    "attention.key_length": 10,
    "attention.value_length": 10,
    "attention.layer_norm_epsilon": 1e-6,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.relative_buckets_count": 16,
    "decoder_start_token_id": 0,
}
ENCODER = {key: value for key, value in T5.items() if not key.startswith("decoder")}
LOST = frozenset({"relative_attention_max_distance", "scale_decoder_outputs"})
"""All published models have a distance of 128; outputs are scaled where the file has no head."""


def with_one_table(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    copies = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    return {name: tensor for name, tensor in tensors.items() if name not in copies}


def stacked(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    """Stack the AltUp projections into one tensor, and add ``.weight`` to a scale's name."""
    made: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if "altup_" in name:
            made.setdefault("altup_unembd_proj.weight" if "unembed" in name else "altup_proj.weight", []).append(tensor)
        else:
            made[f"{name}.weight" if name.endswith("_scale") else name] = tensor
    return {name: np.stack(t) if isinstance(t, list) else t for name, t in made.items()}


GEMMA3N = Form(
    "gemma3n",
    "gemma3n_text",
    {
        "context_length": 64,
        "embedding_length": 60,
        "feed_forward_length": [52] * 4,
        "block_count": 4,
        "attention.head_count": 6,
        "attention.head_count_kv": "num_key_value_heads",
        "attention.key_length": "head_dim",
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": "sliding_window",
        "attention.sliding_window_pattern": [True, False, True, False],
        "attention.shared_kv_layers": "num_kv_shared_layers",
        "altup.active_idx": 0,
        "altup.num_inputs": "altup_num_inputs",
        "embedding_length_per_layer_input": "hidden_size_per_layer_input",
        "activation_sparsity_scale": [NormalDist().inv_cdf(0.9), *[-float("inf")] * 3],
        "rope.freq_base": 1e6,
    },
    stacked,
)
FORMS = [
    Form("t5", "t5", T5, with_one_table, lost=LOST),
    Form("t5", "t5/gated", T5, with_one_table, lost=LOST),
    Form("t5encoder", "t5_encoder", ENCODER, with_one_table, lost=LOST | {"num_decoder_layers"}),
    Form("t5encoder", "t5_encoder/gated", ENCODER, with_one_table, lost=LOST | {"num_decoder_layers"}),
    GEMMA3N,
]


@pytest.mark.parametrize("form", FORMS, ids=[form.id for form in FORMS])
def test_parameters_are_those_of_the_checkpoint(form: Form, tmp_path: Path) -> None:
    raw, tensors = form.model(tmp_path)
    raw = {**raw, "model_type": registry.name_of(raw)}
    for name, value, wanted in parameters_of_both(form, tmp_path / "a.gguf", raw, tensors):
        np.testing.assert_array_equal(value, wanted, err_msg=name)


def test_importances_are_found_by_the_part(tmp_path: Path) -> None:
    """Those of the decoder and of the encoder differ."""
    means = {f"{part}.blk.1.{stem}.weight": i for i, (part, stem) in enumerate(STORED.values())}
    write_legacy(tmp_path / "imatrix", {name: np.full(60, mean, np.float32) for name, mean in means.items()}, 1)
    productions = [Production(name, (60, 60), as_expr(f"{name}.weight")) for name in STORED]
    squares = read_imatrix(tmp_path / "imatrix", productions, "t5").squares
    assert {name: values[0] for name, values in squares.items()} == {name: i for i, name in enumerate(STORED)}


STORED = {
    "encoder.block.1.layer.0.SelfAttention.q": ("enc", "attn_q"),
    "decoder.block.1.layer.0.SelfAttention.q": ("dec", "attn_q"),
    "decoder.block.1.layer.2.DenseReluDense.wi_1": ("dec", "ffn_up"),
}
