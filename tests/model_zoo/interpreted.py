"""A small Hugging Face model with random weights, and the same model exported and run by the interpreter."""

import numpy as np
import torch
import transformers

from mlc_compiler.interp import run_function
from mlc_compiler.ir.dtype import to_numpy
from model_zoo import registry
from quantization.group import encode
from quantization.rewrite import quantized_names
from quantization.schemes import get_scheme

VOCAB = 61
SIZES = {
    "llama": {"hidden_size": 40, "intermediate_size": 52, "num_attention_heads": 5, "num_key_value_heads": 1},
    "mistral": {"hidden_size": 40, "intermediate_size": 52, "num_attention_heads": 4, "num_key_value_heads": 2},
    "mixtral": {"hidden_size": 40, "intermediate_size": 36, "num_attention_heads": 4, "num_key_value_heads": 2},
    "qwen2": {"hidden_size": 48, "intermediate_size": 52, "num_attention_heads": 4, "num_key_value_heads": 2},
    "qwen2_moe": {"hidden_size": 48, "intermediate_size": 52, "num_attention_heads": 4, "num_key_value_heads": 2},
    "gpt2": {"n_embd": 40, "n_inner": 52, "n_head": 5, "n_positions": 64},
}
SIZES["llama"] |= {"head_dim": 12, "num_hidden_layers": 2, "max_position_embeddings": 64}
SIZES["mistral"] |= {"head_dim": 12, "num_hidden_layers": 2, "max_position_embeddings": 64}
SIZES["mixtral"] |= {
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
}
SIZES["qwen2_moe"] |= {"num_experts": 6, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 28}
SIZES["qwen2_moe"] |= {"num_experts_per_tok": 3, "num_hidden_layers": 2, "max_position_embeddings": 64}
SIZES["qwen2"] |= {"num_hidden_layers": 2, "max_position_embeddings": 64}
SIZES["gpt2"] |= {"n_layer": 2, "bos_token_id": 0, "eos_token_id": 0}
CLASSES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen2_moe": (transformers.Qwen2MoeConfig, transformers.Qwen2MoeForCausalLM),
    "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
}


def hugging_face(kind, **options):
    """A transformers model with random weights, norms off 1 and biases off 0."""
    config_class, model_class = CLASSES[kind]
    torch.manual_seed(5)
    sizes = {**SIZES[kind], **options}
    model = model_class(config_class(vocab_size=VOCAB, attn_implementation="eager", **sizes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.2 if parameter.ndim > 1 else 0.3
            center = 1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0
            parameter.copy_(torch.randn(parameter.shape) * spread + center)
    return model


def hf_logits(model, ids):
    """Logits after each of ``ids``, float32 [len(ids), V]."""
    with torch.no_grad():
        return model(torch.tensor([list(ids)])).logits[0].numpy()


def checkpoint(model):
    """The tensors that ``save_pretrained`` would write, without a tied head."""
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight")
    return tensors


def parameters_of(tensors, config, scheme):
    """Unquantized parameters by name, as the weight map makes them, in the scheme's model dtype."""
    architecture = registry.get(config.model_type)
    shapes = {name: p.shape for name, p in architecture.model(config).named_parameters()}
    plan = architecture.weights(config).resolve(shapes, {name: a.shape for name, a in tensors.items()})
    dtype = to_numpy(scheme.model_dtype)
    return {p.name: np.ascontiguousarray(p.value.evaluate(tensors.__getitem__)).astype(dtype) for p in plan.productions}


class Interpreted:
    """An exported model with a KV cache for two sequences in shuffled pages."""

    def __init__(self, model, scheme="q0f32", kv_dtype="float32"):
        raw = model.config.to_dict()
        self.config = registry.get(raw["model_type"]).config.from_hf(raw)
        self.scheme = get_scheme(scheme)
        self.exported = registry.export_model(self.config, self.scheme, kv_dtype=kv_dtype)
        self.packed = tuple(self._stored(parameters_of(checkpoint(model), self.config, self.scheme)))
        (kv,) = self.exported.states
        heads = (kv.num_hidden_layers, 8, kv.num_key_value_heads)
        self.k = np.full((*heads, kv.head_dim, 16), np.nan, to_numpy(kv.dtype))
        self.v = np.full((*heads, 16, kv.head_dim), np.nan, to_numpy(kv.dtype))
        self.table = np.array([[6, 1, 3, 4], [0, 7, 2, 5]], np.int32)

    def _stored(self, plain):
        made = dict(plain)
        infos = {p.name: p for p in self.exported.params}
        for name in plain:
            codes, scales = quantized_names(name)
            if codes in infos:
                words = self.scheme.words(plain[name].shape[-1])
                layout = "NK" if infos[codes].shape == (*plain[name].shape[:-1], words) else "KN"
                stored = encode(plain[name], self.scheme, layout)
                made[codes], made[scales] = stored["q_weight"], stored["q_scale"]
        for p in self.exported.params:
            assert (made[p.name].shape, str(made[p.name].dtype)) == (p.shape, p.dtype)
            yield made[p.name]

    def embed(self, ids):
        return run_function(self.exported.mod, "embed", np.asarray(ids, np.int32), self.packed)

    def __call__(self, function, ids, seq, pos, shape, *more):
        """Logits of a function for tokens ``ids`` at positions ``pos`` of the sequences ``seq``."""
        embedded = self.embed(ids).reshape(*shape, -1)
        arrays = [self.table, np.asarray(seq, np.int32), np.asarray(pos, np.int32)]
        return run_function(self.exported.mod, function, embedded, *more, self.k, self.v, *arrays, self.packed)
