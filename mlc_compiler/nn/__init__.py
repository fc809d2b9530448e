"""The front end: PyTorch-like modules whose forward is traced to an IRModule."""

from . import op, spec
from .layers import Embedding, LayerNorm, Linear, RMSNorm
from .module import Module, ModuleList
from .tensor import Parameter, Tensor

__all__ = [
    "Embedding",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleList",
    "Parameter",
    "RMSNorm",
    "Tensor",
    "op",
    "spec",
]
