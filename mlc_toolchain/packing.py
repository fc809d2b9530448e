"""`compile --keep-weights`: the weights as the library packs them, in a file beside it that is mapped when it loads."""

from __future__ import annotations

from pathlib import Path

from mlc_compiler.codegen.outputs import SHARED
from mlc_compiler.target import Target
from mlc_errors import MLCError, UsageError
from mlc_files import cannot_write
from mlc_runtime.kept_weights import kept_path
from mlc_runtime.library import Library
from mlc_runtime.model import keep_weights
from mlc_runtime.weights import TensorCache
from mlc_toolchain.model_folder import config_path

FLAG = "--keep-weights"


def check_keeping(output: Path, target: Target, model: str | Path) -> None:
    """Raises UsageError for a library whose weights cannot be kept, MLCError for a folder without weights."""
    if output.suffix != SHARED:
        raise UsageError(f"{FLAG}: {output.name} is not loaded as a library; expected a {SHARED} file")
    if target.kind != "cpu":
        raise UsageError(f"{FLAG}: weights are packed for CPUs; the target is {target}")
    TensorCache(config_path(model).parent)


def keep_packed(library: Path, folder: Path) -> None:
    """Write the packed weights of a folder for a library. Raises MLCError where that is not possible or of no use."""
    try:
        kept = keep_weights(Library(library), TensorCache(folder))
    except OSError as error:
        raise cannot_write("the packed weights", kept_path(library), error) from None
    if not kept:
        raise MLCError(
            f"{FLAG}: {library} packs no weights, or the system maps files in small pages, which slow decoding down",
            hint=f"the library is complete; leave {FLAG} away",
        )
