"""The ``quantization_config`` of a config.json, checked before any weight is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlc_errors import UnsupportedError
from mlc_toolchain.readers.base import shown

QUANTIZATION = "quantization_config"
CODE_BITS = (2, 3, 4, 8)
AWQ_BITS = 4
LEFT_OUT = "-:"
"""What begins a rule of GPTQ's ``dynamic`` for layers that are not quantized."""


@dataclass(frozen=True)
class IntegerSettings:
    """bits: of a code. group: consecutive inputs with one scale, -1 for all. zero_offset: zero point minus its stored
    value."""

    bits: int
    group: int
    zero_offset: int = 0


@dataclass(frozen=True)
class BlockSettings:
    """block: rows and columns of a block with one scale."""

    block: tuple[int, int]


@dataclass(frozen=True)
class NoSettings:
    """Of a method with a single form."""


PackedSettings = IntegerSettings | BlockSettings | NoSettings


def quantization_method(config: Mapping[str, Any], where: str) -> str | None:
    """The quantization method of a checkpoint, one of ``METHODS``; None if it is not quantized.

    Raises UnsupportedError for other methods.
    """
    settings = config.get(QUANTIZATION)
    if settings is None:
        return None
    method = settings.get("quant_method") if isinstance(settings, Mapping) else None
    if not isinstance(method, str) or method not in METHODS:
        raise UnsupportedError(
            f"{QUANTIZATION}.quant_method: got {shown(method)}; expected one of {', '.join(METHODS)}",
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


def _awq(settings: Mapping[str, Any], where: str) -> IntegerSettings:
    version, bits = settings.get("version", "gemm"), settings.get("bits", settings.get("w_bit"))
    if not isinstance(version, str) or version.lower() != "gemm" or bits != AWQ_BITS:
        raise UnsupportedError(f"AWQ version {shown(version)}; expected gemm with {AWQ_BITS} bits", where=[where])
    return _integers(settings, where)


def _gptq(settings: Mapping[str, Any], where: str) -> IntegerSettings:
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
    return _integers(settings, where, zero_offset=1 if layout == "gptq" else 0)


def _integers(settings: Mapping[str, Any], where: str, zero_offset: int = 0) -> IntegerSettings:
    bits = _number(settings, ("bits", "w_bit"), where)
    if bits not in CODE_BITS:
        raise UnsupportedError(f"bits: got {bits}; expected 2, 3, 4 or 8", where=[where])
    return IntegerSettings(bits, _number(settings, ("group_size", "q_group_size"), where), zero_offset)


def _fp8(settings: Mapping[str, Any], where: str) -> BlockSettings:
    block = settings.get("weight_block_size")
    match block:
        case [int(rows), int(columns)] if 0 < rows < 1 << 20 and 0 < columns < 1 << 20:
            return BlockSettings((rows, columns))
    raise UnsupportedError(f"weight_block_size: got {shown(block)}; expected two sizes", where=[where])


def _mxfp4(settings: Mapping[str, Any], where: str) -> NoSettings:
    return NoSettings()


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
}
