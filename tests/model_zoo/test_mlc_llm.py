"""MLC LLM's names for models."""

from __future__ import annotations

from model_zoo.mlc_llm import gpt2_model


def test_configurations_take_the_keys_of_hugging_face() -> None:
    keys = {"vocab_size": 100, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "layer_norm_epsilon": 1e-6}
    config = gpt2_model.GPT2Config(**keys)
    assert (config.hidden_size, config.num_hidden_layers, config.layer_norm_epsilon) == (32, 3, 1e-6)
    assert config == gpt2_model.GPT2Config.from_dict(keys)
