"""Plan a preparation: find a model's existing folder and library, or where they will be; takes milliseconds."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from mlc_errors import MLCError, UsageError
from mlc_runtime.host import machine_identity
from mlc_toolchain import model_cache

AUTO, MTP = "auto", "mtp"
HUB_PREFIX = "HF://"
CHAT_CONFIG, CONFIG, LIBRARY = "mlc-chat-config.json", "config.json", "lib.so"
WEIGHTS = "tensor-cache.json"
SOURCE_SUFFIXES = frozenset((".json", ".jinja", ".model", ".txt", ".safetensors", ".bin", ".pt", ".pth", ".gguf"))
OF_THE_RUNTIME = re.compile(r"(cpu|cuda)(:\d+)?")
"""Devices on which a library can run; other names are targets for compilation only."""


@dataclass(frozen=True)
class PrepareOptions:
    """Options of a preparation; None takes the model's own value or the default.

    quantization: scheme for a checkpoint; auto: the most accurate that fits into memory, None: see
    ``default_quantization``. memory: such as "8GiB", instead of this machine's free memory. device: cpu,
    cuda or cuda:N, on which the model will run, or a target to compile for. opt, overrides: see ``CompileOptions``.
    conv_template: see ``GenConfigOptions``. model_lib: a library to use instead of compiling one. model_type: see
    ``ConvertOptions``; mtp selects a checkpoint's MTP draft head, or the one in a model folder's subfolder ``mtp``.
    draft_heads: see ``CompileOptions``.
    """

    quantization: str | None = None
    device: str | None = None
    opt: str | None = None
    overrides: str = ""
    conv_template: str | None = None
    model_lib: Path | None = None
    memory: str | None = None
    model_type: str = AUTO
    draft_heads: bool = False

    @property
    def target(self) -> str:
        """The target to compile for; for cuda:N, this machine's GPU, as for cuda."""
        device = self.device or AUTO
        return device.partition(":")[0] if OF_THE_RUNTIME.fullmatch(device) else device

    @property
    def runtime_device(self) -> str | None:
        """The device to run on; None for the library's default."""
        return self.device if self.device and OF_THE_RUNTIME.fullmatch(self.device) else None

    @property
    def concern_code(self) -> bool:
        """Whether an option requires a library other than the model folder's own."""
        return bool(self.opt or self.overrides or (self.device and self.runtime_device is None))


@dataclass(frozen=True)
class Plan:
    """Paths of a model's files. source: its checkpoint, see ``resolve_source``; "" for a model folder.

    name: of the cache entry. folder, library: their paths, existing or not.
    """

    model: str
    source: str
    name: str
    folder: Path
    library: Path

    @property
    def has_weights(self) -> bool:
        return self.folder.is_dir()

    @property
    def is_ready(self) -> bool:
        return self.has_weights and self.library.is_file()

    @property
    def in_cache(self) -> bool:
        """Whether the library is in the cache."""
        return self.library.parent == model_cache.entry_path(self.name)


def plan_preparation(model: str, options: PrepareOptions) -> Plan:
    """Find the files of ``model``, without checking that it is one. Raises MLCError for options that exclude each other
    or would change files that exist already.
    """
    if options.model_lib is not None and options.concern_code:
        raise UsageError("--model-lib names a compiled library; expected it without --opt, --overrides and a target")
    if model.startswith(HUB_PREFIX):
        from mlc_toolchain.hub_model import fetched

        found = fetched(model)
        return _of_folder(model, found, options) if isinstance(found, Path) else _of_checkpoint(model, *found, options)
    path = Path(model).expanduser()
    if (path / CHAT_CONFIG).is_file():
        return _of_folder(model, path, options)
    if any((path / name).is_file() for name in (LIBRARY, WEIGHTS)):
        raise MLCError(f"cannot read {path / CHAT_CONFIG}: No such file or directory", hint="gen_config writes it")
    return _of_checkpoint(model, model if not path.exists() else str(path), _identity(path), options)


def _of_folder(model: str, folder: Path, options: PrepareOptions) -> Plan:
    """Plan for a folder written by convert_weight and gen_config; uses its own library unless options need another."""
    given_once = {
        "quantization": options.quantization,
        "memory": options.memory,
        "conv-template": options.conv_template,
    }
    for name, given in given_once.items():
        if given is not None:
            option = f"--{name}"
            raise UsageError(
                f"{option} {given}: {model} is converted already", hint=f"leave {option} out, or name the checkpoint"
            )
    if options.model_type == MTP:
        folder = _head_folder(folder)
    stamp = model_cache.tool_stamp()
    name = f"{_stem(folder)}-{model_cache.digest([str(folder.resolve()), _state(folder / CHAT_CONFIG), stamp])}"
    own = folder / LIBRARY
    if options.model_lib is not None:
        library = _given_library(options.model_lib)
    elif not options.concern_code and (own.is_file() or os.access(folder, os.W_OK)):
        library = own
    else:
        library = model_cache.entry_path(name) / _library_name(options)
    return Plan(model, "", name, folder, library)


def _head_folder(folder: Path) -> Path:
    """The folder of a model folder's draft head. Raises UsageError if there is none."""
    if not (folder / MTP / CHAT_CONFIG).is_file():
        raise UsageError(
            f"{folder} has no draft head: {folder / MTP / CHAT_CONFIG} does not exist",
            hint=f"convert_weight and gen_config write it, with --model-type {MTP} -o {folder / MTP}",
        )
    return folder / MTP


def _of_checkpoint(model: str, source: str, identity: object, options: PrepareOptions) -> Plan:
    scheme = options.quantization or "default"
    made_of = [identity, scheme, options.memory, options.conv_template, options.model_type, model_cache.tool_stamp()]
    name = f"{_stem(Path(source))}-{scheme.partition(',')[0]}-{model_cache.digest(made_of)}"
    folder = model_cache.entry_path(name)
    own = folder / _library_name(options)
    return Plan(model, source, name, folder, own if options.model_lib is None else _given_library(options.model_lib))


def _given_library(path: Path) -> Path:
    if not path.is_file():
        raise MLCError(f"the library {path} does not exist", hint="compile writes libraries")
    return path


def _library_name(options: PrepareOptions) -> str:
    """The file name of the library for these options and this machine in a cache entry."""
    code = [options.target, options.opt, options.overrides, options.draft_heads]
    made_of = [*code, machine_identity(), model_cache.tool_stamp()]
    return f"lib-{model_cache.digest(made_of)}.so"


def _identity(path: Path) -> list[object]:
    """Names, sizes and modification times of a checkpoint's files, to detect changes."""
    if not path.exists():
        return []
    if path.is_file() and path.name != CONFIG:
        return [str(path.resolve()), _state(path)]
    folder = (path if path.is_dir() else path.parent).resolve()
    files = [p for pattern in ("*", "*/*") for p in folder.glob(pattern) if p.suffix in SOURCE_SUFFIXES]
    return [str(folder), [[str(p.relative_to(folder)), _state(p)] for p in sorted(files) if p.is_file()]]


def _state(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _stem(path: Path) -> str:
    """A readable name: the file name without suffix; for config.json, its folder's name."""
    named = path.resolve().parent if path.name == CONFIG else path.resolve()
    stem = named.stem if named.suffix == ".gguf" else named.name
    return re.sub(r"[^\w.-]", "-", stem)[:64] or "model"
