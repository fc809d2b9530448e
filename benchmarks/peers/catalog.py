"""The catalog of engines: their environment, and the files that they read for each scheme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OURS = "mlc"


@dataclass(frozen=True)
class Variant:
    """How an engine stores a scheme: minimum bits per weight including scales, bytes per KV cache element."""

    name: str
    weight_bits: float
    cache_bytes: int


@dataclass(frozen=True)
class Engine:
    """An engine. worker: its module in ``peers.workers``. environment: None for this project's own."""

    worker: str
    environment: str | None
    variants: Mapping[str, Variant]


_GGUF = {
    "q4": Variant("Q4_0.gguf", 4.5, 2),
    "q8": Variant("Q8_0.gguf", 8.5, 2),
    "f16": Variant("F16.gguf", 16, 2),
}

ENGINES = {
    OURS: Engine(
        "mlc",
        None,
        {
            "q4": Variant("q4f16_1", 4.5, 2),
            "q8": Variant("q8f16_1", 8.5, 2),
            "f16": Variant("q0f16", 16, 2),
            "f32": Variant("q0f32", 32, 4),
        },
    ),
    "llama.cpp": Engine("llama_cpp", "llama.cpp", _GGUF),
    "ik_llama.cpp": Engine("ik_llama_cpp", "ik_llama.cpp", _GGUF),
    "openvino": Engine(
        "openvino", "openvino", {"q4": Variant("openvino-int4", 4.25, 1), "q8": Variant("openvino-int8", 8, 1)}
    ),
    # CTranslate2 has no 4-bit weights on CPUs: its 8-bit model is also measured beside the 4-bit ones of others
    "ctranslate2": Engine(
        "ctranslate2",
        "ctranslate2",
        {"q4": Variant("ctranslate2-int8", 8, 4), "q8": Variant("ctranslate2-int8", 8, 4)},
    ),
    "onnxruntime": Engine("onnxruntime", "onnxruntime", {"q4": Variant("onnxruntime-int4", 4.5, 4)}),
    "transformers": Engine("transformers", "transformers", {"f32": Variant("checkpoint", 32, 4)}),
}
SCHEMES = ("q4", "q8", "f16", "f32")
