"""The codec of each kind of scheme: a module with ``tensors``, ``encode_rows`` (except AWQ) and ``decode_rows``."""

from __future__ import annotations

from types import ModuleType

from quantization import awq, block_scale, faster_transformer, fp8, group, rows
from quantization.schemes import Scheme

CODECS = {"group": group, "fp8": fp8, "block": block_scale, "awq": awq, "ft": faster_transformer, "rows": rows}


def codec(scheme: Scheme) -> ModuleType:
    return CODECS[scheme.kind]
