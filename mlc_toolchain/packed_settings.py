"""How a checkpoint is quantized: config.json's ``quantization_config``, or a file of its own. No weight is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlc_errors import UnsupportedError
from mlc_toolchain.readers.base import shown
from mlc_toolchain.readers.bounded_json import read_json_object

QUANTIZATION = "quantization_config"
CODE_BITS = (2, 3, 4, 8)
AWQ_BITS = 4
METHOD = "quant_method"
SETTINGS_FILES: Mapping[str, str | None] = {
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
    "hf_quant_config.json": "modelopt",
    "quantization_config.json": None,
}
"""Files beside config.json with the settings of quantization -> the method of those that do not name it: those of
AutoGPTQ, AutoAWQ, ModelOpt and AutoRound."""
NVFP4_FORMAT = "nvfp4-pack-quantized"
LEFT_OUT = "-:"
"""What begins a rule of GPTQ's ``dynamic`` for layers that are not quantized."""


@dataclass(frozen=True)
class IntegerSettings:
    """bits: of a code. group: consecutive inputs with one scale, -1 for all."""

    bits: int
    group: int


class AWQSettings(IntegerSettings):
    pass


@dataclass(frozen=True)
class GPTQSettings(IntegerSettings):
    """zero_offset: zero point minus its stored value."""

    zero_offset: int


@dataclass(frozen=True)
class BlockSettings:
    """block: rows and columns of a block with one scale; None for one scale per matrix. static: whether inputs are
    rounded to float8, too, with scales in the checkpoint."""

    block: tuple[int, int] | None
    static: bool = False


class Mxfp4Settings:
    """MXFP4 has a single form."""


@dataclass(frozen=True)
class Nvfp4Settings:
    """compressed: whether names of tensors are those of compressed-tensors instead of ModelOpt."""

    compressed: bool


PackedSettings = AWQSettings | GPTQSettings | BlockSettings | Mxfp4Settings | Nvfp4Settings


def with_settings_file(config: Mapping[str, Any], file: Callable[[str], Path | None]) -> dict[str, Any]:
    """The configuration with ``quantization_config``, which may be in a file of its own instead of config.json.

    file: the path of a file beside config.json, None if there is no such file. Raises UnsupportedError for settings in
    a file of their own that are not supported.
    """
    if config.get(QUANTIZATION) is not None:
        return dict(config)
    for name, method in SETTINGS_FILES.items():
        if path := file(name):
            found = {**config, QUANTIZATION: {METHOD: method, **read_json_object(path)}}
            packed_settings(found, str(path))
            return found
    return dict(config)


def quantization_method(config: Mapping[str, Any], where: str) -> str | None:
    """The quantization method of a checkpoint, one of ``METHODS``; None if it is not quantized.

    Raises UnsupportedError for other methods.
    """
    settings = config.get(QUANTIZATION)
    if settings is None:
        return None
    method = settings.get(METHOD) if isinstance(settings, Mapping) else None
    if not isinstance(method, str) or method not in METHODS:
        raise UnsupportedError(
            f"{QUANTIZATION}.{METHOD}: got {shown(method)}; expected one of {', '.join(METHODS)}",
            where=[where],
            hint="convert a checkpoint of the model in one of these forms, or one that is not quantized",
        )
    return method


def packed_settings(config: Mapping[str, Any], where: str) -> PackedSettings | None:
    """How a checkpoint is quantized; None if it is not. Raises UnsupportedError for settings that are not supported."""
    method = quantization_method(config, where)
    return None if method is None else METHODS[method](config[QUANTIZATION], where)


def unquantized(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The configuration of the unquantized model. Raises UnsupportedError as ``packed_settings`` does."""
    packed_settings(config, where)
    return {key: value for key, value in config.items() if key != QUANTIZATION}


def _awq(settings: Mapping[str, Any], where: str) -> AWQSettings:
    version, bits = settings.get("version", "gemm"), settings.get("bits", settings.get("w_bit"))
    if not isinstance(version, str) or version.lower() != "gemm" or bits != AWQ_BITS:
        raise UnsupportedError(f"AWQ version {shown(version)}; expected gemm with {AWQ_BITS} bits", where=[where])
    return AWQSettings(AWQ_BITS, _group(settings, where))


def _gptq(settings: Mapping[str, Any], where: str) -> GPTQSettings:
    layout = settings.get("checkpoint_format") or "gptq"
    if settings.get("is_marlin_format"):
        layout = "marlin"
    if layout not in ("gptq", "gptq_v2"):
        raise UnsupportedError(f"checkpoint_format: got {shown(layout)}; expected gptq or gptq_v2", where=[where])
    dynamic = settings.get("dynamic") or {}
    rules = dynamic if isinstance(dynamic, Mapping) else [dynamic]
    changed = [rule for rule in rules if not str(rule).startswith(LEFT_OUT)]
    if changed:
        raise UnsupportedError(f"dynamic: got {shown(changed[0])}; expected the same bits in all layers", where=[where])
    bits = _number(settings, ("bits", "w_bit"), where)
    if bits not in CODE_BITS:
        raise UnsupportedError(f"bits: got {bits}; expected 2, 3, 4 or 8", where=[where])
    return GPTQSettings(bits, _group(settings, where), zero_offset=1 if layout == "gptq" else 0)


def _group(settings: Mapping[str, Any], where: str) -> int:
    return _number(settings, ("group_size", "q_group_size"), where)


def _fp8(settings: Mapping[str, Any], where: str) -> BlockSettings:
    scheme = settings.get("activation_scheme", "dynamic")
    if scheme not in ("dynamic", "static"):
        raise UnsupportedError(f"activation_scheme: got {shown(scheme)}; expected dynamic or static", where=[where])
    static = scheme == "static"
    match block := settings.get("weight_block_size"):
        case None:
            return BlockSettings(None, static)
        case [int(rows), int(columns)] if 0 < rows < 1 << 20 and 0 < columns < 1 << 20:
            return BlockSettings((rows, columns), static)
    raise UnsupportedError(f"weight_block_size: got {shown(block)}; expected two sizes", where=[where])


def _mxfp4(settings: Mapping[str, Any], where: str) -> Mxfp4Settings:
    return Mxfp4Settings()


def _modelopt(settings: Mapping[str, Any], where: str) -> PackedSettings:
    """In a file of their own, the settings are an object of the key ``quantization``."""
    own = settings.get("quantization", settings)
    algorithm = own.get("quant_algo") if isinstance(own, Mapping) else None
    match algorithm:
        case "NVFP4":
            return Nvfp4Settings(compressed=False)
        case "FP8":
            return BlockSettings(None, static=True)
    raise UnsupportedError(f"quant_algo: got {shown(algorithm)}; expected NVFP4 or FP8", where=[where])


def _compressed(settings: Mapping[str, Any], where: str) -> Nvfp4Settings:
    form = settings.get("format")
    if form != NVFP4_FORMAT:
        raise UnsupportedError(f"format: got {shown(form)}; expected {NVFP4_FORMAT}", where=[where])
    return Nvfp4Settings(compressed=True)


def _number(settings: Mapping[str, Any], keys: tuple[str, ...], where: str) -> int:
    value = next((settings[key] for key in keys if key in settings), None)
    if type(value) is not int or not (value == -1 or 0 < value < 1 << 20):
        raise UnsupportedError(f"{keys[0]}: got {shown(value)}; expected a number", where=[where])
    return value


METHODS: Mapping[str, Callable[[Mapping[str, Any], str], PackedSettings]] = {
    "awq": _awq,
    "gptq": _gptq,
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
    "compressed-tensors": _compressed,
}
