"""The table of quantization schemes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

import numpy as np

from mlc_compiler.tir import byte_scales
from mlc_compiler.tir.code_words import CodeWords
from mlc_errors import UsageError

HEAD, TABLE = "head", "table"
MANY_ROWS = 1 << 62


@dataclass(frozen=True)
class Scheme:
    """A quantization scheme: the storage format of a model's weights.

    kind: "none" (cast only), "group" (integer codes and a scale per group of inputs), "fp8" (a scale per tensor),
        "block" (float8, a scale per block of outputs and inputs), "awq" (a checkpoint's codes, zero points, scales),
        "ft" (FasterTransformer's codes, a scale per output) or "rows" (ranges of rows in different group schemes).
    model_dtype: dtype of scales, norms, biases and all other unquantized parameters.
    bits, group: bits per code; inputs per scale. rows: outputs per scale, for blocks.
    storage_dtype: dtype of the array of codes.
    layout: "NK", outputs first as in the checkpoint; "KN", codes and scales transposed; "FT", FasterTransformer's.
        Embeddings are NK.
    quantize_embedding, quantize_final_fc: whether the embedding table and the output head are quantized.
    zero_point: the code of weight 0. max_code: the largest code used.
    rounding: "model" rounds every step to model_dtype, "float32" computes in float32.
    search: scales minimize the squared error instead of being derived from the largest weight.
    scaled: whether there is a scale; only an fp8 scheme may have none.
    float8_inputs: whether inputs of matmuls are also rounded to ``storage_dtype``, with scales that are measured on a
        text ("fp8") or stored in the checkpoint ("block").
    values: the codebook, an integer level in [-128, 127] for each code; without one, levels are code - zero_point.
    byte_scales: whether scales take one byte (``mlc_compiler/tir/byte_scales.py``).
    parts: (shell pattern of layer paths, or a role; name of the scheme for these layers). The first match is
        used. Roles: HEAD is an output head or a tied embedding table; TABLE is any other embedding table. A pattern
        that ends in ``[:N]`` is for the first N rows (outputs) of a weight.
    ranges: for kind "rows", (number of the row after the last one, name of the scheme of these rows), ascending; the
        last one is for all other rows, whatever their number.
    """

    name: str
    kind: str
    model_dtype: str
    bits: int = 0
    group: int = 0
    storage_dtype: str = "uint32"
    layout: str = "NK"
    quantize_embedding: bool = True
    quantize_final_fc: bool = True
    rounding: str = "model"
    search: bool = False
    scaled: bool = True
    float8_inputs: bool = False
    rows: int = 1
    values: tuple[int, ...] = ()
    byte_scales: bool = False
    parts: tuple[tuple[str, str], ...] = ()
    ranges: tuple[tuple[int, str], ...] = ()

    @property
    def zero_point(self) -> int:
        return (1 << (self.bits - 1)) - 1

    @property
    def max_code(self) -> int:
        return (1 << self.bits) - 1 if self.search else 2 * self.zero_point

    @property
    def levels(self) -> np.ndarray:
        """The integer level of every code, int16 [1 << bits], ascending; a weight is its level times the scale."""
        plain = np.arange(1 << self.bits, dtype=np.int16) - np.int16(self.zero_point)
        return np.array(self.values, np.int16) if self.values else plain

    @property
    def scale_dtype(self) -> str:
        """The dtype in which scales of groups are stored."""
        return byte_scales.DTYPE if self.byte_scales else self.model_dtype

    @property
    def plain_level(self) -> int:
        """The level of a group's largest weight if its scale is not searched."""
        return max(self.values, default=self.zero_point)

    @property
    def largest_weight(self) -> float:
        """The largest magnitude of a weight that the scales can represent, for scales of one byte."""
        own = byte_scales.largest_value() * self.plain_level if self.byte_scales else float("inf")
        return min([own, *(SCHEMES[name].largest_weight for _, name in self.ranges)])

    @property
    def measures_inputs(self) -> bool:
        """Whether scales of float8 inputs are measured on a text."""
        return self.float8_inputs and self.kind == "fp8"

    @property
    def can_calibrate(self) -> bool:
        """Whether calibration applies: to codes of 4 to 6 bits and codebooks, and to scales of float8 inputs."""
        parts = [SCHEMES[name] for _, name in (*self.parts, *self.ranges)]
        fits = self.bits in (4, 5, 6) or bool(self.values)
        coded = fits and (self.kind, self.model_dtype) == ("group", "float16")
        own = coded or self.measures_inputs
        return own or any(part.can_calibrate for part in parts)

    @property
    def searched(self) -> Scheme:
        """The scheme with the same storage format and searched scales, which use all codes."""
        return replace(self, search=True, rounding="float32")

    def part(self, path: str, role: str = "") -> Scheme:
        """The scheme for the layer at ``path`` with a role, if any; of kind "rows" if its rows have different ones."""
        ranges: list[tuple[int, str]] = []
        rest = self
        for pattern, name in self.parts:
            pattern, stop = _rows(pattern)
            if not fnmatchcase(path, pattern) and pattern != role:
                continue
            if stop is None:
                rest = SCHEMES[name]
                break
            if not ranges or stop > ranges[-1][0]:
                ranges.append((stop, name))
        if not ranges:
            return rest
        own = rest.name.split(",")[0]
        return replace(rest, kind="rows", parts=(), ranges=(*ranges, (MANY_ROWS, own)), byte_scales=False, values=())

    def of_rows(self, rows: int) -> list[tuple[slice, Scheme]]:
        """The ranges of a weight with this number of rows, and their schemes."""
        found, start = [], 0
        for stop, name in self.ranges:
            if start < rows:
                found.append((slice(start, min(stop, rows)), SCHEMES[name]))
            start = stop
        return found

    @property
    def of_ends(self) -> Scheme:
        """The scheme for the embedding table and the output head, if these are quantized."""
        return replace(self, kind="group", storage_dtype="uint32", layout="NK") if self.kind == "ft" else self

    @property
    def code_words(self) -> CodeWords:
        """The packing of codes into words."""
        return CodeWords(self.bits, self.group)

    def groups(self, inputs: int) -> int:
        return -(-inputs // self.group)

    def words(self, inputs: int) -> int:
        """Number of uint32 words for the codes of ``inputs`` weights; a partial group is padded to a whole one."""
        return self.groups(inputs) * self.code_words.group_words


def _fp8(name: str, storage_dtype: str, scaled: bool) -> Scheme:
    weights = Scheme(name, "fp8", "float16", 8, 1, storage_dtype, scaled=scaled)
    return _without_ends(weights)


def _without_ends(scheme: Scheme) -> Scheme:
    return replace(scheme, quantize_embedding=False, quantize_final_fc=False)


_BLOCKS = _without_ends(Scheme("fp8_e4m3fn_bf16_block_scale", "block", "bfloat16", 8, 128, "float8_e4m3fn", rows=128))

IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The codebook of llama.cpp's IQ4_NL: denser around 0, where most weights are."""

E2M1 = (-12, -8, -6, -4, -3, -2, -1, 0, 0, 1, 2, 3, 4, 6, 8, 12)
"""Twice the values of E2M1, the 4-bit float of MXFP4 and NVFP4 (OCP 2023, "Microscaling Formats (MX)", 5.3.3)."""

# fmt: off
BYTE_SCALED: dict[str, tuple[int, tuple[int, ...]]] = {
    "q2f16_nl8": (16, (-81, -15, 42, 127)),
    "q3f16_nl8": (32, (-91, -52, -25, -2, 21, 47, 79, 127)),
    "q4f16_nl8": (32, (-105, -80, -62, -46, -33, -21, -10, 0, 10, 21, 33, 46, 60, 77, 98, 127)),
    "q4f16_nl8_g16": (16, (-111, -79, -62, -47, -34, -22, -11, -1, 10, 21, 33, 47, 62, 81, 101, 127)),
    "q5f16_nl8": (32, (
        -119, -100, -89, -79, -69, -60, -52, -44, -38, -32, -26, -21, -15, -10, -5, 0, 5, 10, 15, 20, 26, 32, 38,
        45, 52, 60, 68, 77, 86, 99, 111, 127,
    )),
    "q6f16_nl8": (32, (
        -123, -115, -104, -98, -92, -86, -81, -77, -72, -68, -63, -59, -55, -51, -48, -44, -41, -38, -34, -31, -28,
        -26, -23, -20, -17, -15, -12, -10, -7, -5, -3, 0, 2, 5, 7, 10, 12, 15, 17, 20, 23, 26, 29, 32, 35, 38, 41,
        45, 48, 52, 56, 60, 64, 68, 72, 78, 84, 89, 94, 101, 107, 112, 118, 127,
    )),
}
# fmt: on
"""Schemes with scales of one byte: their groups and codebooks (``benchmarks/fit_codebooks.py``). Levels are denser
around 0. The two ends differ; the sign of a scale decides which of them is that of the positive weights."""

_FP4 = Scheme("q4f16_mxfp4", "group", "float16", 4, 32, rounding="float32", search=True, values=E2M1)
_NL = Scheme("q4f16_nl", "group", "float16", 4, 32, rounding="float32", search=True, values=IQ4_NL)
_WIDE_HEAD = ((HEAD, "q8f16_1"),)

SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("q0f16", "none", "float16"),
        Scheme("q0bf16", "none", "bfloat16"),
        Scheme("q0f32", "none", "float32"),
        Scheme("q3f16_0", "group", "float16", 3, 40, layout="KN"),
        Scheme("q3f16_1", "group", "float16", 3, 40),
        Scheme("q4f16_0", "group", "float16", 4, 32, layout="KN"),
        Scheme("q4f16_1", "group", "float16", 4, 32),
        Scheme("q4f16_2", "group", "float16", 4, 32, quantize_embedding=False, quantize_final_fc=False),
        Scheme("q4f16_3", "group", "float16", 4, 32, rounding="float32", search=True),
        Scheme("q5f16_3", "group", "float16", 5, 32, rounding="float32", search=True),
        Scheme("q6f16_3", "group", "float16", 6, 32, rounding="float32", search=True),
        *(
            replace(_NL, name=name, bits=len(values).bit_length() - 1, group=group, values=values, byte_scales=True)
            for name, (group, values) in BYTE_SCALED.items()
        ),
        _NL,
        _FP4,
        replace(_FP4, name="q4f16_nvfp4", group=16),
        replace(_NL, name="q4f16_m", parts=_WIDE_HEAD),
        replace(_NL, name="q4f16_l", parts=(*_WIDE_HEAD, ("*down_proj", "q8f16_1"))),
        Scheme("q4bf16_0", "group", "bfloat16", 4, 32, layout="KN"),
        Scheme("q4bf16_1", "group", "bfloat16", 4, 32),
        Scheme("q4f32_1", "group", "float32", 4, 32),
        Scheme("q8f16_1", "group", "float16", 8, 32, rounding="float32"),
        Scheme("q8f32_1", "group", "float32", 8, 32),
        _fp8("e4m3_e4m3_f16", "float8_e4m3fn", scaled=True),
        replace(_fp8("e4m3_e4m3_f16_max_calibrate", "float8_e4m3fn", scaled=True), float8_inputs=True),
        _fp8("e5m2_e5m2_f16", "float8_e5m2", scaled=False),
        _BLOCKS,
        replace(_BLOCKS, name="fp8_e4m3fn_bf16_block_scale_static_activation", float8_inputs=True),
        _without_ends(Scheme("q4f16_autoawq", "awq", "float16", 4, 128, layout="KN")),
        Scheme("q4f16_ft", "ft", "float16", 4, 32, "int8", layout="FT"),
    )
}
ALIASES = {"q4f16": "q4f16_1", "q4f32": "q4f32_1", "q4bf16": "q4bf16_1", "q3f16": "q3f16_1", "q8f16": "q8f16_1"}


def get_scheme(name: str) -> Scheme:
    """The scheme called ``name`` (or its short form), or a mixture ``NAME,PATTERN=NAME,…`` of group schemes.

    PATTERN: see ``Scheme.parts``. Raises UsageError with the list of names.
    """
    base, *parts = name.split(",")
    return _mixture(_named(base), parts) if parts else _named(base)


def mixture_name(base: str, parts: Iterable[tuple[str, str]]) -> str:
    """The name of a mixture. parts: see ``Scheme.parts``."""
    return ",".join([base, *(f"{pattern}={name}" for pattern, name in parts)])


def _mixture(base: Scheme, texts: Sequence[str]) -> Scheme:
    fitting = {s.name for s in SCHEMES.values() if (s.kind, s.model_dtype, s.parts) == ("group", base.model_dtype, ())}
    parts = []
    for text in texts:
        pattern, _, name = text.rpartition("=")
        part = _named(name)
        stop = _rows(pattern)[1]
        no_rows = stop == 0 or (stop is not None and "KN" in (base.layout, part.layout))
        if not pattern or part.name not in fitting or base.kind != "group" or no_rows:
            raise UsageError(
                f"quantization {base.name}: got the part {text!r}; expected PATTERN=NAME of groups of one dtype",
                hint=f"names are {', '.join(s for s in SCHEMES if s in fitting)}",
            )
        parts.append((pattern, part.name))
    return replace(base, name=mixture_name(base.name, parts), parts=(*parts, *base.parts))


def _rows(pattern: str) -> tuple[str, int | None]:
    """Split ``PATTERN[:N]`` into the pattern and N; None if there is no N."""
    found = re.fullmatch(r"(.*)\[:(\d+)\]", pattern)
    return (found[1], int(found[2])) if found else (pattern, None)


def _named(name: str) -> Scheme:
    scheme = SCHEMES.get(ALIASES.get(name, name))
    if scheme is None:
        near = get_close_matches(name, SCHEMES, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else None
        raise UsageError(f"unknown quantization: got {name!r}; expected one of {', '.join(SCHEMES)}", hint=hint)
    return scheme
