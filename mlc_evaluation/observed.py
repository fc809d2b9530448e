"""Compile a model again with kernel observers, with the options of its library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlc_compiler.passes.observe_kernels import ObserveKernels
from mlc_errors import UnsupportedError
from mlc_runtime.library import Library
from mlc_runtime.llm import LIBRARY_NAME, LLM
from mlc_runtime.metadata import read_metadata
from mlc_runtime.weights import LoadProgress
from mlc_scratch import temporary_folder
from mlc_toolchain.compile import AUTO, CompileOptions, compile_model
from mlc_toolchain.progress import Progress, silent

SIZES = ("context_window_size", "prefill_chunk_size", "max_batch_size")


@dataclass(frozen=True)
class ModelFiles:
    """A compiled model: its folder, its library if not folder/lib.so, the number of worker threads, and the device."""

    folder: Path
    library: Path | None = None
    num_threads: int | None = None
    device: str | None = None

    @property
    def library_path(self) -> Path:
        return self.library or self.folder / LIBRARY_NAME

    def open(self, progress: LoadProgress | None = None) -> LLM:
        """Open the model. Raises MLCError as ``LLM`` does."""
        return LLM(self.folder, self.library, self.num_threads, progress=progress, device=self.device)

    @contextmanager
    def open_observed(
        self, *, tensors: bool, progress: Progress = silent, open_library: Callable[[Path], Library] = Library
    ) -> Iterator[LLM]:
        """Open the model with a library that calls observers, see ``mlc_runtime.observation``. tensors: pass them, too.

        The library has the same kernels, layouts and memory plan as the model's own. Raises UnsupportedError for
        GPU libraries, and for libraries with tuned schedules that are not in a database.
        """
        metadata = read_metadata(self.library_path)
        self._check(metadata)
        options = options_of(metadata)
        with temporary_folder("observed") as folder:
            path = folder / LIBRARY_NAME
            compile_model(CompileOptions(self.folder, path, observe=ObserveKernels(tensors), **options), progress)
            with LLM(self.folder, open_library(path), self.num_threads) as llm:
                yield llm

    def _check(self, metadata: Mapping[str, Any]) -> None:
        kind, tune, where = metadata["target"]["kind"], metadata.get("tune", ""), [str(self.library_path)]
        if kind != "cpu":
            arch = metadata["target"]["arch"]
            names = [arch] if isinstance(arch, str) else arch
            raise UnsupportedError(
                f"the library is for {kind}:{','.join(names)}; kernels are observed on CPUs only",
                where=where,
                hint=f"mlc_cli compile {self.folder} --device cpu -o CPU.so, then --model-lib CPU.so; "
                f"or run its kernels in a simulator: mlc_cli check_kernels {self.folder} --device {kind}:{names[0]}",
            )
        if tune and not Path(tune).is_dir():
            raise UnsupportedError(
                f"the library was compiled with --tune {tune}; its kernels cannot be compiled again",
                where=where,
                hint="compile with --tune DATABASE, a folder that tune has written, or without --tune",
            )


def options_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The ``CompileOptions`` fields with which the library with this metadata was compiled."""
    dtypes = {state["dtype"] for state in metadata["states"] if "dtype" in state}
    return {
        "device": json.dumps(metadata["target"]),
        "opt": metadata["opt"],
        "tune": metadata.get("tune", ""),
        "quantization": metadata["quantization"],
        "model_type": metadata["model_type"],
        "overrides": ";".join(f"{key}={metadata[key]}" for key in SIZES),
        "kv_cache_dtype": dtypes.pop() if len(dtypes) == 1 else AUTO,
    }
