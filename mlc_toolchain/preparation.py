"""Prepare a model: convert, configure and compile what a plan lacks."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mlc_compiler.optimization import DEFAULT_LEVEL
from mlc_errors import MLCError, ResourceError, UsageError
from mlc_runtime import kept_weights
from mlc_runtime.host import free_memory
from mlc_runtime.library import Library
from mlc_runtime.model import keep_weights
from mlc_runtime.weight_index import read_shards
from mlc_runtime.weights import TensorCache
from mlc_toolchain import model_cache
from mlc_toolchain.chat_config import read_chat_config
from mlc_toolchain.checkpoint_config import checkpoint_config, checkpoint_source
from mlc_toolchain.compile import CompileOptions, check_options, compile_model
from mlc_toolchain.conversation import load_template
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight, plan_conversion
from mlc_toolchain.default_quantization import COMPATIBLE, Quantization, default_quantization
from mlc_toolchain.device import find_target
from mlc_toolchain.gen_config import GenConfigOptions, gen_config
from mlc_toolchain.hub import HubSource
from mlc_toolchain.memory_estimate import estimate_memory, parse_bytes
from mlc_toolchain.model_sizes import ModelSizes, SizeOverrides, model_sizes
from mlc_toolchain.prepare_plan import AUTO, Plan, PrepareOptions
from mlc_toolchain.progress import Progress
from mlc_toolchain.source import ModelSource
from mlc_toolchain.writer import free_space
from model_zoo import registry
from quantization.schemes import get_scheme

CANDIDATES = ("q0f16", "q8f16_1", "q6f16_3", "q5f16_3", COMPATIBLE)
"""Schemes from which auto chooses, most accurate first."""
USABLE = 0.8
"""The share of the memory that auto uses for weights and one full context."""
EMBEDDING = "embedding"
LEAST_CONTEXT = 1024
"""The shortest context to which auto shortens the model's own, in tokens."""


@dataclass(frozen=True)
class PreparationReport:
    """A preview of a preparation. steps: those of convert, configure and compile that are needed.

    weight_bytes: size of the weight files, if they will be written; packed_bytes: an estimate of the copy of the
    weights in the layouts of a new library, which is kept beside it if the system maps files in huge pages; free_bytes:
    free space on their disk.
    context_window_size: set if auto shortens the model's own. calibration: the calibration text, if any.
    """

    model: str
    quantization: str
    folder: Path
    library: Path
    steps: tuple[str, ...]
    weight_bytes: int | None = None
    free_bytes: int | None = None
    context_window_size: int | None = None
    calibration: str | None = None
    packed_bytes: int | None = None


def check(plan: Plan, options: PrepareOptions, continues_text: bool = False) -> None:
    """Raise MLCError if there is no such model, for options that it does not support, and without a linker.

    continues_text: an embedding model is refused, too.
    """
    if continues_text:
        _check_task(plan, options.model_type)
    if not plan.has_weights:
        _quantization(plan, checkpoint_source(plan.source), options)
        if options.conv_template not in (None, AUTO):
            load_template(options.conv_template)
    elif not plan.library.is_file():
        read_shards(plan.folder)
    compiling = _compiling(plan, options)
    if compiling:
        check_options(compiling)


def _check_task(plan: Plan, model_type: str) -> None:
    if plan.has_weights:
        task = read_chat_config(plan.folder).model_task
    else:
        task = registry.get(_sizes(checkpoint_source(plan.source), COMPATIBLE, model_type).model_type).task
    if task == EMBEDDING:
        raise UsageError(
            "the model turns texts into vectors; expected one that continues text",
            where=[plan.model],
            hint=f"for vectors of texts: mlc_cli embed {plan.model}",
        )


def prepare(plan: Plan, options: PrepareOptions, progress: Progress) -> None:
    """Create what the plan lacks; ``check`` comes first. Raises MLCError before the cache is changed."""
    if not plan.has_weights:
        _convert(plan, options, progress)
    compiling = _compiling(plan, options)
    if compiling:
        _make_entry(plan)
        compile_model(compiling, progress)
        if plan.in_cache:
            _keep_weights(plan)


def report_of(plan: Plan, options: PrepareOptions) -> PreparationReport:
    """Preview ``prepare`` from configuration and headers; for a model on the Hub, from its configuration alone."""
    compiling = () if plan.library.is_file() else ("compile",)
    if plan.has_weights:
        known = read_chat_config(plan.folder).quantization
        packed = _packed_bytes(plan, options)
        return PreparationReport(plan.model, known, plan.folder, plan.library, compiling, packed_bytes=packed)
    source = checkpoint_source(plan.source)
    made, context = _quantization(plan, source, options)
    kind = options.model_type
    on_hub = isinstance(source, HubSource)
    sizes = _sizes(source, made.scheme, kind).weight_bytes if on_hub else _planned_bytes(plan, made, kind)
    steps = ("convert", "configure", *compiling)
    wanted = (plan.model, made.scheme, plan.folder, plan.library, steps, sizes, free_space(plan.folder))
    return PreparationReport(*wanted, context, made.calibration, _packed_bytes(plan, options, sizes))


def _packed_bytes(plan: Plan, options: PrepareOptions, weight_bytes: int | None = None) -> int | None:
    """An estimate of the file that ``_keep_weights`` writes; None if it writes none. weight_bytes: of those to be
    converted, by default those of the folder."""
    if plan.library.is_file() or not plan.in_cache or find_target(options.target)[0].kind != "cpu":
        return None
    if weight_bytes is None:
        weight_bytes = sum(shard.nbytes for shard in read_shards(plan.folder)[1])
    return kept_weights.HEADER_BYTES + weight_bytes


def _compiling(plan: Plan, options: PrepareOptions) -> CompileOptions | None:
    """The options for compiling the library; None if it exists."""
    if plan.library.is_file():
        return None
    return CompileOptions(
        model=plan.folder,
        output=plan.library,
        device=options.target,
        opt=options.opt or DEFAULT_LEVEL,
        overrides=options.overrides,
        draft_heads=options.draft_heads,
    )


def _convert(plan: Plan, options: PrepareOptions, progress: Progress) -> None:
    made, context = _quantization(plan, checkpoint_source(plan.source), options)
    template = options.conv_template or AUTO
    folder = model_cache.partial(plan.folder)
    try:
        sizes, kind = SizeOverrides(context_window_size=context), options.model_type
        gen_config(GenConfigOptions(plan.source, made.scheme, folder, kind, template, sizes))
        convert_weight(ConvertOptions(plan.source, made.scheme, folder, kind, calibration=made.calibration), progress)
    except ResourceError:
        raise  # the next run continues from the partial entry
    except MLCError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    model_cache.publish(folder, plan.folder, model_cache.Manifest(plan.model, made.scheme, model_cache.tool_stamp()))


def _keep_weights(plan: Plan) -> None:
    """Keep the weights as the library packs them. Those that are not kept are packed when they are loaded: for lack of
    space on the disk, or of a library that runs here."""
    with suppress(MLCError, OSError):
        keep_weights(Library(plan.library), TensorCache(plan.folder))


def _make_entry(plan: Plan) -> None:
    """Create an entry for libraries of a model folder outside of the cache."""
    entry = plan.library.parent
    if plan.in_cache and not entry.is_dir():
        known = read_chat_config(plan.folder).quantization
        made_by = model_cache.Manifest(f"library for {plan.model}", known, model_cache.tool_stamp())
        model_cache.publish(model_cache.partial(entry), entry, made_by)


def _quantization(plan: Plan, source: ModelSource, options: PrepareOptions) -> tuple[Quantization, int | None]:
    """The quantization, and the context length if auto shortens it."""
    if options.quantization == AUTO:
        scheme, context = _fitting(source, options)
        return Quantization(scheme), context
    if options.memory is not None:
        raise UsageError("--memory is what --quantization auto may use", hint="add --quantization auto")
    if options.quantization is None:
        return default_quantization(plan.source, source, plan.folder, options.model_type), None
    return Quantization(get_scheme(options.quantization).name), None


def _fitting(source: ModelSource, options: PrepareOptions) -> tuple[str, int | None]:
    """The most accurate scheme that fits into memory with a full context, and None.

    If none fits, the least accurate scheme and the longest context that fits with it.
    """
    usable = int(USABLE * _memory(options))
    sizes = {name: _sizes(source, name, options.model_type) for name in CANDIDATES}
    for name, found in sizes.items():
        if _needed(found) <= usable:
            return name, None
    name, least = list(sizes.items())[-1]
    context = _context(least, usable)
    if context is None:
        raise ResourceError(
            f"the model does not fit the memory: it takes at least {_needed(least)} bytes of {usable} usable ones",
            hint="close other programs, take a smaller model, or name a scheme and a smaller context_window_size",
        )
    return name, context


def _memory(options: PrepareOptions) -> int:
    """Bytes that auto may use: from the options, else this machine's free memory."""
    if options.memory is not None:
        return parse_bytes(options.memory)
    machine, _ = find_target(options.target)
    if machine.kind != "cpu":
        raise UsageError(f"--quantization auto for the target {machine} takes its memory", hint="add --memory 80GiB")
    return free_memory()


def _needed(sizes: ModelSizes) -> int:
    """Bytes of the weights and of one full context."""
    estimate = estimate_memory(sizes)
    return estimate.weight_bytes + estimate.kv_full_context_bytes


def _context(sizes: ModelSizes, memory: int) -> int | None:
    """The longest context, in multiples of LEAST_CONTEXT, that fits beside the weights; None if none does."""
    if not sizes.kv_bytes_per_token:
        return None
    tokens = (memory - sizes.weight_bytes - sizes.state_bytes) // sizes.kv_bytes_per_token
    return tokens // LEAST_CONTEXT * LEAST_CONTEXT if tokens >= LEAST_CONTEXT else None


def _sizes(source: ModelSource, scheme: str, model_type: str) -> ModelSizes:
    return model_sizes(checkpoint_config(source), model_type, get_scheme(scheme), SizeOverrides())


def _planned_bytes(plan: Plan, made: Quantization, model_type: str) -> int:
    options = ConvertOptions(plan.source, made.scheme, plan.folder, model_type, calibration=made.calibration)
    return plan_conversion(options).output.nbytes
