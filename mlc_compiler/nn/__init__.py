"""The front end: PyTorch-like modules whose forward is traced to an IRModule."""

from . import op, spec
from .layers import Embedding, LayerNorm, Linear, RMSNorm
from .module import Module, ModuleList
from .tensor import Parameter, ParameterError, Tensor

__all__ = [
    "Embedding",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleList",
    "Parameter",
    "ParameterError",
    "RMSNorm",
    "Tensor",
    "op",
    "spec",
]
