"""Parameters whose checkpoint tensors already have the scheme's format, and are copied bit by bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mlc_errors import UnsupportedError
from mlc_toolchain.readers.base import CheckpointReader
from model_zoo.weight_expr import CheckpointTensor, Concat, Expr, Stack
from quantization.kept_codes import StoredForm
from quantization.schemes import Scheme

INPUT_SCALES = "activation_scale"
QUANTIZED_BITS = 9
"""Tensors stored with at most this many bits per weight, including scales, count as quantized."""


def keeps_form(value: Expr, reader: CheckpointReader, scheme: Scheme) -> bool:
    """Whether a parameter's tensors have the scheme's format and concatenate at block boundaries. Reads no data."""
    match value:
        case CheckpointTensor(name):
            form = reader.stored_form(name)
            return form is not None and form.fits(scheme)
        case Concat(parts, axis=0) if all(isinstance(part, CheckpointTensor) for part in parts):
            rows = [reader.info(name).shape[0] for name in value.sources()]
            aligned = all(count % scheme.rows == 0 for count in rows[:-1])
            return aligned and all(keeps_form(part, reader, scheme) for part in parts)
        case Stack(parts):
            return all(keeps_form(part, reader, scheme) for part in parts)
    return False


def is_quantized_again(value: Expr, reader: CheckpointReader, scheme: Scheme) -> bool:
    """Whether the parameter's tensors are quantized in another format than the scheme's."""
    infos = [reader.info(name) for name in value.sources()]
    return all(8 * i.nbytes <= QUANTIZED_BITS * i.elements for i in infos) and not keeps_form(value, reader, scheme)


def kept_form(
    value: Expr, reader: CheckpointReader, kinds: Mapping[str, np.dtype], transposed: bool
) -> dict[str, np.ndarray]:
    """The stored tensors of a parameter for which ``keeps_form`` is true, by kind, in the dtypes ``kinds``.

    transposed: whether the scheme stores outputs along the last axis.
    """

    def joined(kind: str) -> np.ndarray:
        if kind == INPUT_SCALES:
            return _shared([(name, _form(reader, name).read(kind)) for name in value.sources()])
        found = value.evaluate(lambda name: _form(reader, name).read(kind))
        return np.swapaxes(found, -1, -2) if transposed else found

    return {kind: joined(kind).astype(dtype, copy=False) for kind, dtype in kinds.items()}


def _shared(scales: Sequence[tuple[str, np.ndarray]]) -> np.ndarray:
    """The scales of the inputs of layers that are joined. Raises MLCError if they differ."""
    (first, found), *others = scales
    for name, more in others:
        if not np.array_equal(found, more):
            raise UnsupportedError(
                f"{first} and {name} have different scales of their inputs; expected the same, as they are joined",
                hint="fp8_e4m3fn_bf16_block_scale leaves inputs unrounded",
            )
    return found


def _form(reader: CheckpointReader, name: str) -> StoredForm:
    form = reader.stored_form(name)
    assert form is not None
    return form
