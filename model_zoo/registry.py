"""The architectures by Hugging Face's ``model_type``, and the export of their models to IR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from mlc_compiler.ir.module import IRModule
from mlc_compiler.nn import spec
from mlc_compiler.nn.states import State
from mlc_errors import UnsupportedError, UsageError
from model_zoo import decoder
from model_zoo.architecture import Architecture, ModelConfig
from model_zoo.vision import VisionLanguageModel
from quantization.rewrite import WeightFormat, quantize_model
from quantization.schemes import Scheme

AUTO, MTP = "auto", "mtp"
OF_HEADS = f"_{MTP}"
"""What the names of heads for multi-token prediction have after that of their model."""


class Architectures(Mapping[str, Architecture]):
    """Architectures by name; their modules are imported on first lookup.

    places: name -> (module in ``model_zoo``, name of the architecture in it).
    """

    def __init__(self, places: Mapping[str, str]):
        self._places = places

    def __getitem__(self, name: str) -> Architecture:
        module, _, attribute = self._places[name].partition(".")
        found: Architecture = getattr(import_module(f"model_zoo.{module}"), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


ARCHITECTURES = Architectures(
    {
        "llama": "llama.ARCHITECTURE",
        "mistral": "mistral.ARCHITECTURE",
        "ministral": "ministral.ARCHITECTURE",
        "mixtral": "mixtral.ARCHITECTURE",
        "qwen2": "qwen2.ARCHITECTURE",
        "qwen2_moe": "qwen2_moe.ARCHITECTURE",
        "mimo": "mimo.ARCHITECTURE",
        "gpt2": "gpt2.ARCHITECTURE",
        "qwen3": "qwen3.ARCHITECTURE",
        "qwen3_moe": "qwen3_moe.ARCHITECTURE",
        "doge": "doge.ARCHITECTURE",
        "deepseek": "deepseek.ARCHITECTURE",
        "deepseek_v2": "deepseek_v2.ARCHITECTURE",
        "deepseek_v3": "deepseek_v3.ARCHITECTURE",
        "deepseek_v32": "deepseek_v32.ARCHITECTURE",
        "glm_moe_dsa": "deepseek_v32.GLM",
        "kimi_k2": "deepseek_v3.KIMI",
        "kimi_linear": "kimi_linear.ARCHITECTURE",
        "minicpm3": "minicpm3.ARCHITECTURE",
        "youtu": "youtu.ARCHITECTURE",
        "glm4_moe": "glm4_moe.ARCHITECTURE",
        "glm4_moe_lite": "glm4_moe.LITE",
        "solar_open": "glm4_moe.SOLAR",
        "olmoe": "olmoe.ARCHITECTURE",
        "flex_olmo": "flex_olmo.ARCHITECTURE",
        "phimoe": "phimoe.ARCHITECTURE",
        "granitemoe": "granitemoe.ARCHITECTURE",
        "ernie4_5_moe": "ernie4_5_moe.ARCHITECTURE",
        "hunyuan_v1_moe": "hunyuan_moe.ARCHITECTURE",
        "minimax_m2": "minimax_m2.ARCHITECTURE",
        "dots1": "dots1.ARCHITECTURE",
        "bailing_moe": "bailing_moe.ARCHITECTURE",
        "bailing_moe_v2": "bailing_moe.SECOND",
        "exaone_moe": "exaone_moe.ARCHITECTURE",
        "mistral4": "mistral4.ARCHITECTURE",
        "gpt_oss": "gpt_oss.ARCHITECTURE",
        "mimo_v2_flash": "mimo_v2.ARCHITECTURE",
        "step3p5": "step3p5.ARCHITECTURE",
        "llama4_text": "llama4.TEXT",
        "llama4": "llama4_images.ARCHITECTURE",
        "cwm": "cwm.ARCHITECTURE",
        "qwen3_next": "qwen3_next.ARCHITECTURE",
        "qwen3_5_text": "qwen3_5.TEXT",
        "qwen3_5": "qwen3_5.ARCHITECTURE",
        "qwen3_5_moe_text": "qwen3_5.MOE_TEXT",
        "qwen3_5_moe": "qwen3_5.MOE",
        "rwkv5": "rwkv.RWKV5",
        "rwkv6": "rwkv.RWKV6",
        "rwkv7": "rwkv7.ARCHITECTURE",
        "gemma": "gemma.ARCHITECTURE",
        "gemma2": "gemma2.ARCHITECTURE",
        "vaultgemma": "vaultgemma.ARCHITECTURE",
        "gemma3_text": "gemma3.TEXT",
        "gemma3": "gemma3.ARCHITECTURE",
        "gemma3n_text": "gemma3n.TEXT",
        "gemma3n": "gemma3n_images.ARCHITECTURE",
        "gemma4_text": "gemma4.TEXT",
        "gemma4": "gemma4_images.ARCHITECTURE",
        "llava": "llava.ARCHITECTURE",
        "idefics3": "idefics3.ARCHITECTURE",
        "smolvlm": "idefics3.SMOLVLM",
        "qwen2_vl": "qwen2_vl.ARCHITECTURE",
        "qwen2_5_vl": "qwen2_5_vl.ARCHITECTURE",
        "qwen3_vl": "qwen3_vl.ARCHITECTURE",
        "qwen3_vl_moe": "qwen3_vl_moe.ARCHITECTURE",
        "phi3": "phi3.ARCHITECTURE",
        "phi3_v": "phi3_v.ARCHITECTURE",
        "smollm3": "smollm3.ARCHITECTURE",
        "olmo": "olmo.ARCHITECTURE",
        "olmo2": "olmo2.ARCHITECTURE",
        "olmo3": "olmo2.OLMO3",
        "olmo_hybrid": "olmo_hybrid.ARCHITECTURE",
        "starcoder2": "starcoder2.ARCHITECTURE",
        "gpt_neox": "gpt_neox.ARCHITECTURE",
        "gptj": "gptj.ARCHITECTURE",
        "gpt_neo": "gpt_neo.ARCHITECTURE",
        "phi": "phi.ARCHITECTURE",
        "phi-msft": "phi.MSFT",
        "stablelm": "stablelm.ARCHITECTURE",
        "helium": "helium.ARCHITECTURE",
        "internlm3": "helium.INTERNLM3",
        "iquestcoder": "helium.IQUESTCODER",
        "internlm2": "internlm2.ARCHITECTURE",
        "internlm": "internlm2.INTERNLM",
        "baichuan": "baichuan.ARCHITECTURE",
        "orion": "orion.ARCHITECTURE",
        "qwen": "qwen.ARCHITECTURE",
        "jais2": "jais2.ARCHITECTURE",
        "nanochat": "nanochat.ARCHITECTURE",
        "nemotron": "nemotron.ARCHITECTURE",
        "nemotron_h": "nemotron_h.ARCHITECTURE",
        "granite": "granite.ARCHITECTURE",
        "minicpm": "granite.MINICPM",
        "granite_swa": "granite_swa.ARCHITECTURE",
        "granitemoehybrid": "granite_hybrid.ARCHITECTURE",
        "cohere": "cohere.ARCHITECTURE",
        "cohere2": "cohere.COHERE2",
        "cohere2_moe": "cohere2_moe.ARCHITECTURE",
        "gpt_bigcode": "gpt_bigcode.ARCHITECTURE",
        "glm": "glm.ARCHITECTURE",
        "glm4": "glm.GLM4",
        "chatglm": "glm.CHATGLM",
        "ministral3": "ministral3.ARCHITECTURE",
        "mistral3": "mistral3.ARCHITECTURE",
        "lfm2": "lfm2.ARCHITECTURE",
        "hy_v3": "hy_v3.ARCHITECTURE",
        "lfm2_moe": "lfm2_moe.ARCHITECTURE",
        "lfm2_vl": "lfm2_vl.ARCHITECTURE",
        "mamba": "mamba.ARCHITECTURE",
        "falcon_mamba": "mamba.FALCON",
        "mamba2": "mamba2.ARCHITECTURE",
        "bamba": "bamba.ARCHITECTURE",
        "jamba": "jamba.ARCHITECTURE",
        "zamba2": "zamba2.ARCHITECTURE",
        "seed_oss": "seed_oss.ARCHITECTURE",
        "ernie4_5": "seed_oss.ERNIE4_5",
        "exaone": "exaone.ARCHITECTURE",
        "exaone4": "exaone4.ARCHITECTURE",
        "hunyuan_v1_dense": "hunyuan.ARCHITECTURE",
        "arcee": "arcee.ARCHITECTURE",
        "afmoe": "afmoe.ARCHITECTURE",
        "apertus": "arcee.APERTUS",
        "falcon": "falcon.ARCHITECTURE",
        "falcon_h1": "falcon_h1.ARCHITECTURE",
        "mpt": "bloom.MPT",
        "bloom": "bloom.ARCHITECTURE",
        "opt": "opt.ARCHITECTURE",
        "bert": "bert.ARCHITECTURE",
        "bert-bge": "bert.BGE",
        "roberta": "bert.ROBERTA",
        "xlm-roberta": "bert.XLM_ROBERTA",
        "distilbert": "distilbert.ARCHITECTURE",
        "mpnet": "mpnet.ARCHITECTURE",
        "gte": "gte.ARCHITECTURE",
        "deberta-v2": "deberta_v2.ARCHITECTURE",
        "jina_embeddings_v3": "gte.JINA",
        "modernbert": "modernbert.ARCHITECTURE",
        "nomic_bert": "nomic_bert.ARCHITECTURE",
        "eurobert": "eurobert.ARCHITECTURE",
        "embeddinggemma": "embeddinggemma.ARCHITECTURE",
        "qwen3-embedding": "qwen3.EMBEDDING",
        "eagle": "eagle.ARCHITECTURE",
        "medusa": "medusa.ARCHITECTURE",
        "deepseek_v3_mtp": "deepseek_v3.MTP",
        "glm4_moe_mtp": "glm4_moe.MTP",
        "glm4_moe_lite_mtp": "glm4_moe.LITE_MTP",
        "bailing_moe_v2_mtp": "bailing_moe.SECOND_MTP",
        "qwen3_next_mtp": "qwen3_next.MTP",
        "qwen3_5_text_mtp": "qwen3_5.TEXT_MTP",
        "qwen3_5_mtp": "qwen3_5.MTP",
        "qwen3_5_moe_text_mtp": "qwen3_5.MOE_TEXT_MTP",
        "qwen3_5_moe_mtp": "qwen3_5.MOE_MTP",
        "mimo_mtp": "mimo.MTP",
        "mimo_v2_flash_mtp": "mimo_v2.MTP",
        "ernie4_5_moe_mtp": "ernie4_5_moe.MTP",
        "t5": "t5.ARCHITECTURE",
        "t5_encoder": "t5_encoder.ARCHITECTURE",
    }
)
"""By ``model_type``."""


def get(model_type: str) -> Architecture:
    """The architecture of a ``model_type``. Raises UnsupportedError, which lists known names, similar ones first."""
    if model_type not in ARCHITECTURES:
        similar = get_close_matches(model_type, ARCHITECTURES, n=5)
        names = [*similar, *sorted(ARCHITECTURES.keys() - similar)]
        raise UnsupportedError(
            f"model_type: got {model_type!r}, which is not supported; expected one of {', '.join(names)}"
        )
    return ARCHITECTURES[model_type]


def name_of(config: Mapping[str, Any]) -> str | None:
    """The architecture's name for a config.json: its ``model_type``, or that of a variant."""
    name = config.get("model_type")
    known = isinstance(name, str) and name in ARCHITECTURES
    return (ARCHITECTURES[str(name)].variant(config) if known else None) or name


def resolve(model_type: str, own: str) -> str:
    """The architecture that ``model_type`` names: itself, ``auto`` for ``own``, or ``mtp`` for the head of ``own``.

    Raises UnsupportedError where that has none.
    """
    if model_type != MTP:
        return own if model_type == AUTO else model_type
    name = f"{own.removesuffix(OF_HEADS)}{OF_HEADS}"
    if name not in ARCHITECTURES:
        expected = ", ".join(n.removesuffix(OF_HEADS) for n in ARCHITECTURES if n.endswith(OF_HEADS))
        raise UnsupportedError(f"{own} models have no layer for multi-token prediction; expected one of {expected}")
    return name


@dataclass(frozen=True)
class ParameterInfo:
    """Name, shape and dtype of a weight parameter of the compiled functions."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ExportedModel:
    """mod: the architecture's functions. params: in the order of ``packed_params``. states: in the functions' order.

    formats: name of a weight before quantization -> its format.
    """

    mod: IRModule
    params: tuple[ParameterInfo, ...]
    states: tuple[State, ...]
    architecture: Architecture
    config: ModelConfig
    formats: Mapping[str, WeightFormat] = field(default_factory=dict)


def export_model(
    config: ModelConfig,
    scheme: Scheme | None = None,
    activation_dtype: str = "float32",
    kv_dtype: str | None = None,
    draft_heads: bool = False,
) -> ExportedModel:
    """Trace every function of a model whose architecture is registered; see ``export``."""
    return export(get(config.model_type), config, scheme, activation_dtype, kv_dtype, draft_heads)


def export(
    architecture: Architecture,
    config: ModelConfig,
    scheme: Scheme | None = None,
    activation_dtype: str = "float32",
    kv_dtype: str | None = None,
    draft_heads: bool = False,
) -> ExportedModel:
    """Trace every function of a model.

    scheme: quantization scheme of the weights; None: float32. kv_dtype: dtype of the KV cache; by default float16 for
    float16 schemes, else float32. draft_heads: also export the functions that draft heads need. Raises UsageError for a
    model that does not support draft heads.
    """
    model = architecture.model(config)
    formats = {} if scheme is None else quantize_model(model, scheme, architecture.quantization)
    if kv_dtype is None:
        kv_dtype = "float16" if scheme is not None and scheme.model_dtype == "float16" else "float32"
    states = tuple(architecture.states(config, kv_dtype))
    functions = dict(architecture.entry_points(model, config, states, activation_dtype))
    if draft_heads:
        if not architecture.takes_draft_heads:
            raise UsageError(f"{architecture.name} models take no draft heads; expected a decoder")
        text = model.language_model if isinstance(model, VisionLanguageModel) else model
        functions |= decoder.draft_head_entry_points(text, config, states, activation_dtype)
    mod, parameters = model.export(spec.ModuleSpec(functions))
    params = tuple(ParameterInfo(name, p.shape, p.dtype) for name, p in parameters.items())
    return ExportedModel(mod, params, states, architecture, config, formats)
