"""The architectures by Hugging Face's ``model_type``, and the export of their models to IR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from mlc_compiler.ir.module import IRModule
from mlc_compiler.nn import spec
from mlc_compiler.nn.states import State
from mlc_errors import UnsupportedError
from model_zoo import (
    afmoe,
    arcee,
    baichuan,
    bert,
    bloom,
    cohere,
    cohere2_moe,
    cwm,
    deepseek,
    deepseek_v2,
    deepseek_v3,
    dots1,
    eagle,
    embeddinggemma,
    ernie4_5_moe,
    eurobert,
    exaone4,
    exaone_moe,
    falcon,
    falcon_h1,
    gemma,
    gemma2,
    gemma3,
    gemma3n,
    gemma4,
    glm,
    glm4_moe,
    gpt2,
    gpt_bigcode,
    gpt_neox,
    gpt_oss,
    gptj,
    granite,
    granite_hybrid,
    granite_swa,
    granitemoe,
    helium,
    hunyuan,
    hunyuan_moe,
    hy_v3,
    idefics3,
    internlm2,
    jais2,
    lfm2,
    lfm2_moe,
    llama,
    llama4,
    llava,
    mamba,
    mamba2,
    medusa,
    minicpm3,
    minimax_m2,
    ministral3,
    mistral,
    mistral4,
    mixtral,
    modernbert,
    nanochat,
    nemotron,
    nemotron_h,
    nomic_bert,
    olmo,
    olmo2,
    olmoe,
    opt,
    orion,
    phi,
    phi3,
    phimoe,
    qwen,
    qwen2,
    qwen2_5_vl,
    qwen2_moe,
    qwen2_vl,
    qwen3,
    qwen3_5,
    qwen3_moe,
    qwen3_next,
    qwen3_vl,
    rwkv,
    rwkv7,
    seed_oss,
    smollm3,
    stablelm,
    starcoder2,
    t5,
    vaultgemma,
)
from model_zoo.architecture import Architecture, ModelConfig
from quantization.rewrite import quantize_model
from quantization.schemes import Scheme

ARCHITECTURES: dict[str, Architecture] = {
    a.name: a
    for a in (
        llama.ARCHITECTURE,
        mistral.ARCHITECTURE,
        mixtral.ARCHITECTURE,
        qwen2.ARCHITECTURE,
        qwen2_moe.ARCHITECTURE,
        gpt2.ARCHITECTURE,
        qwen3.ARCHITECTURE,
        qwen3_moe.ARCHITECTURE,
        deepseek.ARCHITECTURE,
        deepseek_v2.ARCHITECTURE,
        deepseek_v3.ARCHITECTURE,
        deepseek_v3.KIMI,
        minicpm3.ARCHITECTURE,
        glm4_moe.ARCHITECTURE,
        glm4_moe.LITE,
        glm4_moe.SOLAR,
        olmoe.ARCHITECTURE,
        phimoe.ARCHITECTURE,
        granitemoe.ARCHITECTURE,
        ernie4_5_moe.ARCHITECTURE,
        hunyuan_moe.ARCHITECTURE,
        minimax_m2.ARCHITECTURE,
        dots1.ARCHITECTURE,
        exaone_moe.ARCHITECTURE,
        mistral4.ARCHITECTURE,
        gpt_oss.ARCHITECTURE,
        llama4.TEXT,
        llama4.ARCHITECTURE,
        cwm.ARCHITECTURE,
        qwen3_next.ARCHITECTURE,
        qwen3_5.TEXT,
        qwen3_5.ARCHITECTURE,
        qwen3_5.MOE_TEXT,
        qwen3_5.MOE,
        rwkv.RWKV5,
        rwkv.RWKV6,
        rwkv7.ARCHITECTURE,
        gemma.ARCHITECTURE,
        gemma2.ARCHITECTURE,
        vaultgemma.ARCHITECTURE,
        gemma3.TEXT,
        gemma3.ARCHITECTURE,
        gemma3n.TEXT,
        gemma3n.ARCHITECTURE,
        gemma4.TEXT,
        gemma4.ARCHITECTURE,
        llava.ARCHITECTURE,
        idefics3.ARCHITECTURE,
        idefics3.SMOLVLM,
        qwen2_vl.ARCHITECTURE,
        qwen2_5_vl.ARCHITECTURE,
        qwen3_vl.ARCHITECTURE,
        phi3.ARCHITECTURE,
        smollm3.ARCHITECTURE,
        olmo.ARCHITECTURE,
        olmo2.ARCHITECTURE,
        olmo2.OLMO3,
        starcoder2.ARCHITECTURE,
        gpt_neox.ARCHITECTURE,
        gptj.ARCHITECTURE,
        phi.ARCHITECTURE,
        phi.MSFT,
        stablelm.ARCHITECTURE,
        helium.ARCHITECTURE,
        helium.INTERNLM3,
        helium.IQUESTCODER,
        internlm2.ARCHITECTURE,
        internlm2.INTERNLM,
        baichuan.ARCHITECTURE,
        orion.ARCHITECTURE,
        qwen.ARCHITECTURE,
        jais2.ARCHITECTURE,
        nanochat.ARCHITECTURE,
        nemotron.ARCHITECTURE,
        nemotron_h.ARCHITECTURE,
        granite.ARCHITECTURE,
        granite.MINICPM,
        granite_swa.ARCHITECTURE,
        granite_hybrid.ARCHITECTURE,
        cohere.ARCHITECTURE,
        cohere.COHERE2,
        cohere2_moe.ARCHITECTURE,
        gpt_bigcode.ARCHITECTURE,
        glm.ARCHITECTURE,
        glm.GLM4,
        glm.CHATGLM,
        ministral3.ARCHITECTURE,
        ministral3.MISTRAL3,
        lfm2.ARCHITECTURE,
        hy_v3.ARCHITECTURE,
        lfm2_moe.ARCHITECTURE,
        mamba.ARCHITECTURE,
        mamba.FALCON,
        mamba2.ARCHITECTURE,
        seed_oss.ARCHITECTURE,
        seed_oss.ERNIE4_5,
        exaone4.ARCHITECTURE,
        hunyuan.ARCHITECTURE,
        arcee.ARCHITECTURE,
        afmoe.ARCHITECTURE,
        arcee.APERTUS,
        falcon.ARCHITECTURE,
        falcon_h1.ARCHITECTURE,
        bloom.MPT,
        bloom.ARCHITECTURE,
        opt.ARCHITECTURE,
        bert.ARCHITECTURE,
        bert.BGE,
        bert.ROBERTA,
        bert.XLM_ROBERTA,
        modernbert.ARCHITECTURE,
        nomic_bert.ARCHITECTURE,
        eurobert.ARCHITECTURE,
        embeddinggemma.ARCHITECTURE,
        qwen3.EMBEDDING,
        eagle.ARCHITECTURE,
        medusa.ARCHITECTURE,
        t5.ARCHITECTURE,
    )
}


def get(model_type: str) -> Architecture:
    """The architecture of a ``model_type``. Raises UnsupportedError with the names that exist, similar ones first."""
    if model_type not in ARCHITECTURES:
        similar = get_close_matches(model_type, ARCHITECTURES, n=5)
        names = [*similar, *sorted(ARCHITECTURES.keys() - similar)]
        raise UnsupportedError(
            f"model_type: got {model_type!r}, which is not supported; expected one of {', '.join(names)}"
        )
    return ARCHITECTURES[model_type]


def name_of(config: Mapping[str, Any]) -> str | None:
    """The architecture's name for a config.json: its ``model_type``, unless another architecture describes it."""
    named = next((a.name for a in ARCHITECTURES.values() if a.describes(config)), None)
    return named or config.get("model_type")


@dataclass(frozen=True)
class ParameterInfo:
    """A weight as the compiled functions take it."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ExportedModel:
    """mod: the architecture's functions. params: in the order of ``packed_params``. states: in the functions' order."""

    mod: IRModule
    params: tuple[ParameterInfo, ...]
    states: tuple[State, ...]
    architecture: Architecture
    config: ModelConfig


def export_model(
    config: ModelConfig,
    scheme: Scheme | None = None,
    activation_dtype: str = "float32",
    kv_dtype: str | None = None,
) -> ExportedModel:
    """Trace every function of a model whose architecture is registered; see ``export``."""
    return export(get(config.model_type), config, scheme, activation_dtype, kv_dtype)


def export(
    architecture: Architecture,
    config: ModelConfig,
    scheme: Scheme | None = None,
    activation_dtype: str = "float32",
    kv_dtype: str | None = None,
) -> ExportedModel:
    """Trace every function of a model.

    scheme: how weights are stored, float32 when None. kv_dtype: of keys and values; float16 for float16 schemes, else
    float32, when None.
    """
    model = architecture.model(config)
    if scheme is not None:
        quantize_model(model, scheme, architecture.quantization)
    if kv_dtype is None:
        kv_dtype = "float16" if scheme is not None and scheme.model_dtype == "float16" else "float32"
    states = tuple(architecture.states(config, kv_dtype))
    functions = architecture.entry_points(model, config, states, activation_dtype)
    mod, parameters = model.export(spec.ModuleSpec(functions))
    params = tuple(ParameterInfo(name, p.shape, p.dtype) for name, p in parameters.items())
    return ExportedModel(mod, params, states, architecture, config)
