"""A Llama's parameters and weight map, written down by hand, so that conversion is tested without the model zoo."""

from mlc_toolchain.convert_weight import ModelWeights
from model_zoo.weight_map import WeightMap


def llama_parameters(c):
    hidden, heads, kv_heads, size = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    inner = c["intermediate_size"]
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        shapes[f"{layer}.self_attn.qkv_proj.weight"] = ((heads + 2 * kv_heads) * size, hidden)
        shapes[f"{layer}.self_attn.o_proj.weight"] = (hidden, heads * size)
        shapes[f"{layer}.mlp.gate_up_proj.weight"] = (2 * inner, hidden)
        shapes[f"{layer}.mlp.down_proj.weight"] = (hidden, inner)
        shapes[f"{layer}.input_layernorm.weight"] = (hidden,)
        shapes[f"{layer}.post_attention_layernorm.weight"] = (hidden,)
    return shapes


def llama_weight_map(c):
    m = WeightMap()
    for layer in m.layers("model.layers.{}", c["num_hidden_layers"]):
        m.concat(f"{layer}.self_attn.qkv_proj", [f"{layer}.self_attn.{p}_proj" for p in "qkv"], axis=0)
        m.concat(f"{layer}.mlp.gate_up_proj", [f"{layer}.mlp.{p}_proj" for p in ("gate", "up")], axis=0)
        m.unused(f"{layer}.self_attn.rotary_emb.inv_freq")
    return m


def llama_weights(config, scheme):
    parameters = llama_parameters(config)
    quantized = {}
    if scheme.kind == "group":
        matrices = [name for name, shape in parameters.items() if len(shape) == 2]
        quantized = {name: "NK" if "embed" in name else scheme.layout for name in matrices}
        if not scheme.quantize_embedding:
            del quantized["model.embed_tokens.weight"]
        if not scheme.quantize_final_fc:
            quantized.pop("lm_head.weight", None)
    return ModelWeights("llama", parameters, llama_weight_map(config), quantized)
