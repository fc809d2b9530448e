"""ik_llama.cpp, through the ctypes module of ik_llama_cpp_python. FILES is a GGUF."""

from __future__ import annotations

import ctypes
from importlib import metadata
from pathlib import Path
from typing import Any

import ik_llama_cpp._ctypes_api as api

from peers.workers.gguf import GgufEngine
from peers.workers.serve import serve


class IkLlamaCpp(GgufEngine):
    """ik_llama.cpp with weights repacked at load time, and flash attention."""

    def __init__(self, path: Path, threads: int):
        params = api.llama_model_default_params()
        params.repack_tensors, params.use_mmap = True, False
        super().__init__(api, path, threads, params)
        self.version = f"ik_llama_cpp_python {metadata.version('ik_llama_cpp_python')}"
        system_info = api._lib.llama_print_system_info
        system_info.restype = ctypes.c_char_p
        self.build = system_info().decode()

    def clear(self) -> None:
        api.llama_kv_cache_clear(self._context)

    def context_params(self) -> Any:
        params = super().context_params()
        params.flash_attn = True
        return params


if __name__ == "__main__":
    serve(IkLlamaCpp)
