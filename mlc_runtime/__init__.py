"""Runtime for compiled models: loads lib.so and weights, manages the KV cache, tokenizes, samples, generates.

Imports nothing of the compiler: the files in the model folder are the only interface.
"""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "LLM": "mlc_runtime.llm",
    "Library": "mlc_runtime.library",
    "load_library": "mlc_runtime.library",
    "render_chat_template": "mlc_runtime.chat_template",
    "render_conversation": "mlc_runtime.chat_template",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
