"""Resolve a user's MODEL argument to a folder and a library, converting and compiling what is missing.

Existing files are found without importing the compiler; ``preparation`` is imported only if there is work to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlc_toolchain import model_cache
from mlc_toolchain.prepare_plan import Plan, PrepareOptions, plan_preparation
from mlc_toolchain.progress import Progress, silent

if TYPE_CHECKING:
    from mlc_toolchain.preparation import PreparationReport


@dataclass(frozen=True)
class PreparedModel:
    """A folder with weights, configuration and tokenizer, the library, and the ``device`` argument for ``LLM``."""

    folder: Path
    library: Path
    device: str | None


def prepared_model(
    model: str,
    options: PrepareOptions | None = None,
    progress: Progress = silent,
    waiting: Callable[[], None] = lambda: None,
    continues_text: bool = False,
) -> PreparedModel:
    """The folder and the library of ``model``, created in the cache (``model_cache``) if missing.

    model: a model folder, which is compiled if it has no lib.so; a checkpoint folder, its config.json, or a GGUF file;
    ``HF://owner/name[@revision]`` of either, or ``HF://owner/name:file.gguf``. waiting: called before this process
    waits for another one that is preparing the same model. continues_text: refuse embedding models
    before they are prepared. An interrupted preparation is continued by the next. Raises
    MLCError for a model that cannot be prepared, before anything is written.
    """
    options = options or PrepareOptions()
    plan = plan_preparation(model, options)
    if not plan.is_ready:
        _check_checkpoint(plan, options)
        from mlc_toolchain.preparation import check, prepare

        check(plan, options, continues_text)
        with model_cache.locked(plan.name, waiting):
            prepare(plan, options, progress)
    for path in {plan.folder, plan.library.parent}:
        model_cache.mark_used(path)
    return PreparedModel(plan.folder, plan.library, options.runtime_device)


def preview(model: str, options: PrepareOptions) -> PreparationReport:
    """Preview ``prepared_model`` and the bytes that it would write; nothing is written. Raises MLCError as it does."""
    plan = plan_preparation(model, options)
    if not plan.is_ready:
        _check_checkpoint(plan, options)
    from mlc_toolchain.preparation import check, report_of

    if not plan.is_ready:
        check(plan, options)
    return report_of(plan, options)


def _check_checkpoint(plan: Plan, options: PrepareOptions) -> None:
    """Raise MLCError for a checkpoint that is missing or not supported, before the compiler is imported."""
    if not plan.has_weights:
        from mlc_toolchain.checkpoint_config import check_checkpoint

        check_checkpoint(plan.source, options.model_type)
