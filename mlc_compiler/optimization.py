"""Options of the pipeline: the levels O0 to O3, and single options that deviate from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mlc_errors import UsageError


@dataclass(frozen=True)
class Optimization:
    """Options that select the optimizations of the pipeline; lowering itself always runs.

    fusion: folds constants and fuses operators into one tensor function. schedules: applies the schedule rules of the
    back end, its hand-written operators and its packed layouts; without it tensor functions are plain loop nests.
    activation_bits: width of the activations in integer matmuls with quantized weights on CPUs, 8 or 16; None computes
    such matmuls in float32. With 8, CPUs with a bfloat16 dot product instruction also round activations to bfloat16 in
    attention and before bfloat16 weights. Other targets compute in floating point and ignore this option.
    """

    fusion: bool = True
    schedules: bool = True
    activation_bits: int | None = 8

    @property
    def text(self) -> str:
        """The options as text that ``parse`` accepts: ``fusion=1;schedules=1;act=8``."""
        return f"fusion={self.fusion:d};schedules={self.schedules:d};act={self.activation_bits or EXACT}"

    @classmethod
    def parse(cls, text: str) -> Optimization:
        """Options from ``"O2"``, ``"fusion=1;act=exact"`` or ``"O3;act=16"``; later parts override earlier ones.

        Raises UsageError for an unknown level, an unknown key, and a value that the key does not have.
        """
        result = LEVELS[DEFAULT_LEVEL]
        for part in filter(None, (part.strip() for part in text.split(";"))):
            name, given, value = part.partition("=")
            if given:
                result = replace(result, **_option(name.strip(), value.strip()))
            elif name in LEVELS:
                result = LEVELS[name]
            else:
                raise UsageError(f"--opt: got {name!r}; expected {', '.join(LEVELS)} or KEY=VALUE;...", hint=_KEYS)
        return result


EXACT = "exact"
LEVELS = {
    "O0": Optimization(fusion=False, schedules=False, activation_bits=None),
    "O1": Optimization(schedules=False, activation_bits=None),
    "O2": Optimization(activation_bits=None),
    "O3": Optimization(),
}
DEFAULT_LEVEL = "O3"

_SWITCH: Mapping[str, bool] = {"0": False, "1": True}
_OPTIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "fusion": ("fusion", _SWITCH),
    "schedules": ("schedules", _SWITCH),
    "act": ("activation_bits", {"8": 8, "16": 16, EXACT: None}),
}
_KEYS = "keys are " + ", ".join(f"{key} ({', '.join(values)})" for key, (_, values) in _OPTIONS.items())
_OTHER_LIBRARIES = ("flashinfer", "cublas_gemm", "faster_transformer", "cutlass", "ipc_allreduce_strategy")


def _option(key: str, value: str) -> dict[str, Any]:
    if key in _OTHER_LIBRARIES:
        raise UsageError(f"--opt: {key} selects a library of kernels; this compiler generates all kernels", hint=_KEYS)
    if key == "cudagraph":
        raise UsageError("--opt: cudagraph cannot be chosen; repeated calls are always recorded as graphs", hint=_KEYS)
    if key not in _OPTIONS:
        raise UsageError(f"--opt: unknown key {key!r}", hint=_KEYS)
    name, values = _OPTIONS[key]
    if value not in values:
        raise UsageError(f"--opt: {key} is {value!r}; expected one of {', '.join(values)}")
    return {name: values[value]}
