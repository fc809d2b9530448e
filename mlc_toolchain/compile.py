"""The `compile` command as a function: compile the model of a mlc-chat-config.json to one native library."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import count
from pathlib import Path
from typing import Any

from mlc_compiler.backends import backend_of, host_target
from mlc_compiler.codegen.link import find_linker
from mlc_compiler.codegen.outputs import SHARED, check_output
from mlc_compiler.driver import build_library
from mlc_compiler.ir.module import IRModule
from mlc_compiler.nn.kv_cache import KV_DTYPES, CacheError
from mlc_compiler.optimization import DEFAULT_LEVEL, Optimization
from mlc_compiler.passes.observe_kernels import ObserveKernels
from mlc_compiler.schedules.rule import Rule
from mlc_compiler.target import Target
from mlc_errors import UnsupportedError, UsageError
from mlc_files import cannot_write, check_writable
from mlc_runtime.metadata import read_metadata
from mlc_runtime.stamp import KEYS, STAMP
from mlc_toolchain.chat_config import ChatConfig, read_chat_config, unknown_keys
from mlc_toolchain.device import find_target
from mlc_toolchain.library_metadata import model_metadata, params_bytes
from mlc_toolchain.model_folder import config_path
from mlc_toolchain.progress import Progress, Step, silent
from model_zoo.architecture import ModelConfig
from model_zoo.config_check import SIZE_LIMIT
from model_zoo.registry import ExportedModel, export_model, get, resolve
from quantization.schemes import Scheme, get_scheme

OVERRIDES = (
    "context_window_size",
    "sliding_window_size",
    "prefill_chunk_size",
    "attention_sink_size",
    "max_batch_size",
    "tensor_parallel_shards",
    "pipeline_parallel_stages",
)
UNUSED = -1
NO = ("false", "no", "0")
WINDOW_FIELDS = {"sliding_window_size": "sliding_window", "attention_sink_size": "attention_sink_size"}
AUTO = "auto"
LOG = logging.getLogger(__name__)
PHASES = 3
"""The phases of ``build_library``: passes, code generation, linking."""
EMIT_KINDS = {"llvm": ".ll", "asm": ".s", "ptx": ""}
"""Kinds of text output and their file suffixes; that of PTX contains the architecture's name."""


@dataclass(frozen=True)
class CompileOptions:
    """Options of ``compile``. model: see ``config_path``. overrides: ``"key=value;key=value"`` of config sizes.

    opt: see ``Optimization.parse``. device: the target as text, see ``Target``; auto: this machine's GPU, else its
    CPU. host: LLVM triple of the CPU that runs graph functions; auto: the device's. output: its suffix selects the
    type, see ``write_output``. system_lib_prefix: symbol prefix of an output for static linking; auto: none.
    tune: duration of a search for schedules (``90s``, ``10m``), or a database written by ``tune``; empty for
    neither. kv_cache_dtype: dtype of the KV cache, one of KV_DTYPES; auto: float16 for schemes with
    float16, else float32. observe: call an observer after each kernel, see ``ObserveKernels``.
    draft_heads: add the functions that draft heads (EAGLE, Medusa, MTP) need. keep_weights: write the model folder's
    weights, packed, to a file beside the library (``packing.py``).
    """

    model: str | Path
    output: Path
    device: str = "auto"
    host: str = "auto"
    opt: str = DEFAULT_LEVEL
    overrides: str = ""
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    draft_heads: bool = False
    model_type: str = "auto"
    debug_dump: Path | None = None
    emit: tuple[str, ...] = ()
    system_lib_prefix: str = "auto"
    observe: ObserveKernels | None = None
    tune: str = ""
    keep_weights: bool = False


@dataclass(frozen=True)
class Source:
    """The input of a compilation: configuration and its file, target and a note on it, the model's functions."""

    path: Path
    config: ChatConfig
    machine: Target
    note: str
    optimization: Optimization
    exported: ExportedModel


@dataclass(frozen=True)
class CompileReport:
    """The result of ``compile``. Sizes in bytes; the workspace is the largest of any function.

    images: for GPUs, the architectures of the PTX and machine code. note: remarks on the target, and on unused keys of
    the configuration.
    """

    output: Path
    functions: list[str]
    num_kernels: int
    seconds_per_phase: dict[str, float]
    workspace_bytes: int
    params_bytes: int
    kv_bytes_per_token: int
    target: dict[str, Any]
    images: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def compile_model(options: CompileOptions, progress: Progress = silent) -> CompileReport:
    """Compile the model that a chat configuration describes. Raises MLCError if it cannot be compiled."""
    check_options(options)
    _check_output(options)
    if options.keep_weights:
        from mlc_toolchain.packing import check_keeping, keep_packed  # the runtime takes 0.1 s to import

        check_keeping(options.output, find_target(options.device, options.host)[0], options.model)
    source = source_of(options)
    config, machine, optimization, exported = source.config, source.machine, source.optimization, source.exported
    _make_writable(options.output)
    rules: Sequence[Rule] = ()
    if options.tune:
        from mlc_toolchain.tuning import first_rules  # with the spaces of all targets

        rules = first_rules(options.tune, exported.mod, machine, optimization, progress)

    started = count()

    def phase(name: str) -> None:
        progress(Step("compile", next(started), PHASES, detail=name))

    def metadata(mod: IRModule) -> Mapping[str, Any]:
        quantization = options.quantization or config.quantization
        return {
            **model_metadata(exported, quantization, mod, config.active_vocab_size),
            STAMP: {key: config.to_dict()[key] for key in KEYS},
            "opt": optimization.text,
            **({"tune": options.tune} if options.tune else {}),
        }

    built = build_library(
        exported.mod,
        machine,
        options.output,
        optimization=optimization,
        observe=options.observe,
        first_rules=rules,
        prefix=_prefix(options),
        metadata=metadata,
        dump=options.debug_dump,
        emit=options.emit,
        progress=phase,
    )
    progress(Step("compile", PHASES, PHASES))
    LOG.info("seconds per phase: %s", ", ".join(f"{name} {seconds:.3f}" for name, seconds in built.seconds.items()))
    for kind, text in built.texts.items():
        options.output.with_suffix(EMIT_KINDS.get(kind, f".{kind}")).write_text(text)
    if options.keep_weights:
        keep_packed(options.output, source.path.parent)
    facts = metadata(built.mod)
    return CompileReport(
        options.output,
        [n for n in exported.mod if n in facts["memory_usage"]],
        built.num_kernels,
        {name: round(seconds, 3) for name, seconds in built.seconds.items()},
        max(facts["memory_usage"].values()),
        params_bytes(exported),
        sum(state.bytes_per_token for state in exported.states),
        {k: v for k, v in machine.export().items() if k in ("kind", "arch", "mtriple", "mcpu", "vector-width")},
        read_metadata(options.output).get("images", {}) if options.output.suffix == SHARED else {},
        "; ".join(filter(None, (source.note, *_unused_keys(source.path)))),
    )


def source_of(options: CompileOptions) -> Source:
    """Read the configuration and export the model. Raises MLCError if it cannot be compiled."""
    path = config_path(options.model)
    LOG.info("found the model configuration %s", path)
    config = read_chat_config(path)
    machine, note = find_target(options.device, options.host)
    LOG.info("generating code for %s: %s", options.device, json.dumps(machine.export()))
    optimization = _optimization(options.opt, machine)
    LOG.info("optimization: %s", optimization.text)
    if "ptx" in options.emit and machine.kind != "cuda":
        raise UsageError(f"--emit ptx: the target {machine} has no PTX", hint="use --device cuda or cuda:sm_90a")
    exported = _export(config, options, parse_overrides(options.overrides), machine)
    return Source(path, config, machine, note, optimization, exported)


def _unused_keys(path: Path) -> list[str]:
    return [f"{key} of {path.name} is not used" for key in unknown_keys(path)]


def _optimization(text: str, machine: Target) -> Optimization:
    """Parse ``--opt`` for a target; only CPUs quantize activations."""
    optimization = Optimization.parse(text)
    if machine.kind == "cpu":
        return optimization
    if "act=" in text and optimization.activation_bits is not None:
        raise UsageError(
            f"--opt: act={optimization.activation_bits} concerns the integer products of CPUs; the target is {machine}"
        )
    return replace(optimization, activation_bits=None)


def check_options(options: CompileOptions) -> None:
    """Raises MLCError for options that are invalid for any model, and if there is no linker; reads no model."""
    machine, _ = find_target(options.device, options.host)
    find_linker(host_target(machine).arch)
    _optimization(options.opt, machine)
    parse_overrides(options.overrides)
    if options.tune:
        from mlc_toolchain.tuning import check_tuning  # with the spaces of all targets

        check_tuning(options.tune, machine, Optimization.parse(options.opt))
    for kind in options.emit:
        if kind not in EMIT_KINDS:
            raise UsageError(f"--emit: got {kind!r}; expected one of {', '.join(EMIT_KINDS)}")


def _check_output(options: CompileOptions) -> None:
    if options.output.is_dir():
        raise UsageError(
            f"--output: {options.output} is a folder; expected a file", hint=f"use {options.output}/lib.so"
        )
    check_output(options.output, _prefix(options))


def _make_writable(output: Path) -> None:
    """Create the output's folder. Raises MLCError if the output cannot be written; called before the work."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write("to the output folder", output.parent, error) from None
    check_writable(output, "the library")


def _prefix(options: CompileOptions) -> str:
    """The prefix of symbols; empty for auto."""
    return "" if options.system_lib_prefix == "auto" else options.system_lib_prefix


def parse_overrides(text: str) -> dict[str, int]:
    """Parse ``"context_window_size=2048;max_batch_size=4"``. Raises UsageError for unknown keys and invalid values."""
    result = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        key, _, value = item.partition("=")
        if key == "disaggregation":
            _refuse_disaggregation(value)
            continue
        if key not in OVERRIDES:
            raise UsageError(f"--overrides: unknown key {key!r}; expected one of {', '.join(OVERRIDES)}")
        try:
            result[key] = int(value)
        except ValueError:
            raise UsageError(f"--overrides: {key} is {value!r}; expected an integer") from None
        lowest = UNUSED if key in WINDOW_FIELDS else 1
        if not lowest <= result[key] < SIZE_LIMIT:
            raise UsageError(f"--overrides: {key} is {value}; expected {lowest} to {SIZE_LIMIT - 1}")
    return result


def _refuse_disaggregation(value: str) -> None:
    """Raises UnsupportedError unless the value is one of ``NO``."""
    if value.lower() not in NO:
        raise UnsupportedError(
            f"--overrides: disaggregation={value} is not supported; prefill and decode share devices"
        )


def _export(
    config: ChatConfig, options: CompileOptions, overrides: Mapping[str, int], machine: Target
) -> ExportedModel:
    scheme = get_scheme(options.quantization or config.quantization)
    activation_dtype = backend_of(machine).activation_dtype(scheme.model_dtype)
    model = model_config(config, overrides, options.model_type)
    return export_with_cache(model, scheme, activation_dtype, options.kv_cache_dtype, options.draft_heads)


def export_with_cache(
    model: ModelConfig, scheme: Scheme, activation_dtype: str, kv_cache_dtype: str, draft_heads: bool = False
) -> ExportedModel:
    """Export the model's functions with a KV cache of ``kv_cache_dtype``; auto: the scheme's.

    Raises UsageError for a dtype that the cache does not support, and if the model has no KV cache.
    """
    if kv_cache_dtype == AUTO:
        return export_model(model, scheme, activation_dtype, draft_heads=draft_heads)
    if kv_cache_dtype not in KV_DTYPES:
        expected = ", ".join((AUTO, *KV_DTYPES))
        raise UsageError(f"--kv-cache-dtype: got {kv_cache_dtype!r}; expected one of {expected}")
    try:
        exported = export_model(model, scheme, activation_dtype, kv_cache_dtype, draft_heads)
    except CacheError as error:
        raise UsageError(f"--kv-cache-dtype: {error}", hint="use --kv-cache-dtype auto") from error
    if not any("dtype" in state.describe() for state in exported.states):
        raise UsageError(f"--kv-cache-dtype: {model.model_type} models have no KV cache", hint="leave the option out")
    return exported


def model_config(config: ChatConfig, overrides: Mapping[str, int], model_type: str = "auto") -> ModelConfig:
    """The architecture's configuration from a chat configuration, with sizes in ``overrides`` replaced.

    Raises UsageError for a size that the architecture does not have, UnsupportedError for more than one device.
    """
    name = resolve(model_type, config.model_type)
    architecture = get(name)
    if config.model_task == "embedding" and architecture.task == "chat":
        raise UnsupportedError(f"model_task: got 'embedding'; {name} models are compiled for 'chat' only")
    sizes = {
        "context_window_size": config.context_window_size,
        "sliding_window_size": config.sliding_window_size,
        "prefill_chunk_size": config.prefill_chunk_size,
        "attention_sink_size": config.attention_sink_size,
    }
    known = {f.name for f in fields(architecture.config)}
    for key, name_in_config in WINDOW_FIELDS.items():
        if key in overrides and name_in_config not in known:
            raise UsageError(f"--overrides: {name} models have no {key}")
    values = {**config.model_config, **{k: v for k, v in sizes.items() if v > 0}, **overrides}
    devices = {
        "tensor_parallel_shards": config.tensor_parallel_shards,
        "pipeline_parallel_stages": config.pipeline_parallel_stages,
    }
    for key, top in devices.items():
        count = overrides.get(key, max(top, int(values.get(key, 1))))
        if count != 1:
            raise UnsupportedError(f"{key}: got {count}; only 1 is supported")
    result: ModelConfig = architecture.config.from_hf(values)
    if result.vocab_size != config.vocab_size:
        raise UsageError(f"vocab_size: got {config.vocab_size}; model_config has {result.vocab_size}")
    return result
