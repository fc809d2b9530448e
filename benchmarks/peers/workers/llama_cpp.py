"""llama.cpp, through the ctypes module of llama-cpp-python. FILES is a GGUF."""

from __future__ import annotations

from pathlib import Path

import llama_cpp

from peers.workers.gguf import GgufEngine
from peers.workers.serve import serve


class LlamaCpp(GgufEngine):
    """llama.cpp with its own choice of flash attention."""

    def __init__(self, path: Path, threads: int):
        super().__init__(llama_cpp, path, threads, llama_cpp.llama_model_default_params())
        self.version = f"llama-cpp-python {llama_cpp.__version__}"
        self.build = llama_cpp.llama_print_system_info().decode()

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), False)


if __name__ == "__main__":
    serve(LlamaCpp)
