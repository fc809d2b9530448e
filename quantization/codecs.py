"""The codec of each kind of scheme: a module with ``tensors``, ``encode_rows`` and ``decode_rows``."""

from __future__ import annotations

from types import ModuleType

from quantization import fp8, group
from quantization.schemes import Scheme

CODECS = {"group": group, "fp8": fp8}


def codec(scheme: Scheme) -> ModuleType:
    return CODECS[scheme.kind]
